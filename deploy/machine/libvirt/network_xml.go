package libvirt

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"

	"libvirt.org/go/libvirtxml"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

func networkXML(c provider.Cluster, n provider.Network, reservations []provider.Reservation) (string, error) {
	if !n.CIDR.IsValid() || !n.CIDR.Addr().Is4() || n.CIDR.Bits() > 29 {
		return "", fmt.Errorf("network %s: %s is not an IPv4 range of at least eight addresses", n.Name, n.CIDR)
	}
	return executeTemplate("network.xml", struct {
		provider.Network
		Cluster          provider.Cluster
		UUID, BridgeName string
		Reservations     []provider.Reservation
	}{n, c, networkUUID(c, n.Name), bridgeName(n.Name), reservations})
}

// bridgeName returns the name of a network's bridge. The name has 13 bytes; Linux allows 15 bytes for an interface.
func bridgeName(network string) string {
	return fmt.Sprintf("virnb%x", sha256.Sum256([]byte(network)))[:13]
}

// networkInfo is a network as libvirt describes it. Mark is nil if nixbench did not create the network.
type networkInfo struct {
	Name         string
	UUID         string
	Mark         *networkMark
	Mode         provider.Mode // forward mode; Isolated if the network has no forward mode
	Domain       string
	CIDRs        []netip.Prefix
	Reservations []provider.Reservation
}

// BelongsTo reports whether nixbench created the network for the cluster. It returns false for a copy of the network,
// because a copy has another UUID.
func (f networkInfo) BelongsTo(c provider.Cluster) bool {
	return f.Mark != nil && f.Mark.ID == c.ID && f.UUID == networkUUID(c, f.Name)
}

func parseNetwork(text string) (networkInfo, error) {
	// These elements may be missing.
	n := libvirtxml.Network{Metadata: &libvirtxml.NetworkMetadata{}, Domain: &libvirtxml.NetworkDomain{}}
	if err := n.Unmarshal(text); err != nil {
		return networkInfo{}, fmt.Errorf("read libvirt's description of a network: %w", err)
	}
	f := networkInfo{Name: n.Name, UUID: n.UUID, Mode: provider.Isolated, Mark: parseMarks(n.Metadata.XML).Network, Domain: n.Domain.Name}
	if n.Forward != nil {
		f.Mode = cmp.Or(provider.Mode(n.Forward.Mode), provider.NAT)
	}
	for _, ip := range n.IPs {
		bits := int(ip.Prefix)
		if ip.Netmask != "" {
			bits, _ = net.IPMask(net.ParseIP(ip.Netmask).To4()).Size()
		}
		if p, err := netip.ParsePrefix(fmt.Sprintf("%s/%d", ip.Address, bits)); err == nil && bits > 0 {
			f.CIDRs = append(f.CIDRs, p.Masked())
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
