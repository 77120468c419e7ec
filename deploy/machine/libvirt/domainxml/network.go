package domainxml

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"

	"libvirt.org/go/libvirtxml"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// Network returns the XML of a network that nixbench manages.
func Network(c provider.Cluster, n provider.Network, reservations []provider.Reservation) (string, error) {
	if !n.CIDR.IsValid() || !n.CIDR.Addr().Is4() || n.CIDR.Bits() > 29 {
		return "", fmt.Errorf("network %s: %s is not an IPv4 range of at least eight addresses", n.Name, n.CIDR)
	}
	return execute("network.xml", struct {
		provider.Network
		Cluster          provider.Cluster
		UUID, BridgeName string
		Reservations     []provider.Reservation
	}{n, c, deriveNetworkUUID(c, n.Name), BridgeName(n.Name), reservations})
}

// BridgeName returns the name of a network's bridge. The name has 13 bytes; Linux allows 15 bytes for an
// interface.
func BridgeName(network string) string {
	return fmt.Sprintf("virnb%x", sha256.Sum256([]byte(network)))[:13]
}

// Reservation returns the XML of one reservation, for updating an existing network.
func Reservation(r provider.Reservation) (string, error) { return execute("reservation", r) }

// NetworkInfo is a network as libvirt describes it. Mark is nil if nixbench did not create the network.
type NetworkInfo struct {
	Name         string
	UUID         string
	Mark         *NetworkMark
	Mode         provider.Mode // forward mode; Isolated if the network has no forward mode
	Domain       string
	CIDRs        []netip.Prefix
	Reservations []provider.Reservation
}

// BelongsTo reports whether nixbench created the network for the cluster. It returns false for a copy of the network,
// because a copy has another UUID.
func (f NetworkInfo) BelongsTo(c provider.Cluster) bool {
	return f.Mark != nil && f.Mark.ID == c.ID && f.UUID == deriveNetworkUUID(c, f.Name)
}

func deriveNetworkUUID(c provider.Cluster, name string) string {
	return deriveUUID("network", c.ID, name)
}

// ParseNetwork parses libvirt's description of a network.
func ParseNetwork(text string) (NetworkInfo, error) {
	var n libvirtxml.Network
	if err := n.Unmarshal(text); err != nil {
		return NetworkInfo{}, fmt.Errorf("read libvirt's description of a network: %w", err)
	}
	f := NetworkInfo{Name: n.Name, UUID: n.UUID, Mode: provider.Isolated}
	if n.Forward != nil {
		f.Mode = provider.Mode(n.Forward.Mode)
		if f.Mode == "" {
			f.Mode = provider.NAT
		}
	}
	if n.Metadata != nil {
		f.Mark = parseMarks(n.Metadata.XML).Network
	}
	if n.Domain != nil {
		f.Domain = n.Domain.Name
	}
	for _, ip := range n.IPs {
		addr, err := netip.ParseAddr(ip.Address)
		if err != nil {
			continue
		}
		bits := int(ip.Prefix)
		if ip.Netmask != "" {
			bits = countMaskBits(ip.Netmask)
		}
		if p, err := addr.Prefix(bits); err == nil && bits > 0 {
			f.CIDRs = append(f.CIDRs, p)
		}
		if ip.DHCP == nil {
			continue
		}
		for _, h := range ip.DHCP.Hosts {
			if a, err := netip.ParseAddr(h.IP); err == nil {
				f.Reservations = append(f.Reservations, provider.Reservation{Node: h.Name, MAC: h.MAC, Address: a})
			}
		}
	}
	return f, nil
}

func countMaskBits(mask string) int {
	bits, _ := net.IPMask(net.ParseIP(mask).To4()).Size()
	return bits
}
