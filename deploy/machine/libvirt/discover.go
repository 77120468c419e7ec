package libvirt

import (
	"context"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// Addresses implements [provider.Provider]. It returns a machine's addresses from the first of these sources that has an address: the network's
// leases, the guest agent, the hypervisor's ARP table, the local ARP table.
func (h *Hypervisor) Addresses(ctx context.Context, c provider.Cluster, node string) ([]netip.Addr, error) {
	return query(ctx, h, node, "find the address", "", func(s *session) ([]netip.Addr, error) {
		d, err := s.findMachine(c, node)
		if err != nil || d == nil || !d.isMachineOfNode(c, node) {
			return nil, err
		}
		if on, err := isActive(d.d); err != nil || !on {
			return nil, err
		}
		return d.findAddresses(), nil
	})
}

func (d *domain) findAddresses() []netip.Addr {
	var found []netip.Addr
	add := func(mac, address string) {
		ip, err := netip.ParseAddr(address)
		if err == nil && strings.EqualFold(mac, d.MAC) && !ip.IsLinkLocalUnicast() && !slices.Contains(found, ip) {
			found = append(found, ip)
		}
	}
	if len(d.Networks) > 0 && d.Networks[0] != "" {
		if n, err := d.conn.LookupNetworkByName(d.Networks[0]); err == nil {
			d.freeAtEnd(n)
			for _, l := range listLeases(n) {
				add(l.MAC, l.Address.String())
			}
		}
	}
	for _, source := range []libvirt.DomainInterfaceAddressesSource{
		libvirt.DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT, libvirt.DOMAIN_INTERFACE_ADDRESSES_SRC_ARP,
	} {
		if len(found) > 0 {
			return found
		}
		links, _ := d.d.ListAllInterfaceAddresses(source) // an error: the guest runs no agent, or the driver does not support this source
		for _, l := range links {
			for _, a := range l.Addrs {
				add(l.Hwaddr, a.Addr)
			}
		}
	}
	if len(found) == 0 {
		// libvirt 9.0 cannot read the ARP table of newer kernels ("wrong nlmsg len"). So read the ARP table of this computer.
		if table, err := os.ReadFile("/proc/net/arp"); err == nil {
			found = findNeighbours(string(table), d.MAC)
		}
	}
	return found
}

// findNeighbours returns the addresses that table, an ARP table of Linux, contains for a MAC.
func findNeighbours(table, mac string) []netip.Addr {
	var found []netip.Addr
	for line := range strings.Lines(table) {
		// The columns are IP address, HW type, Flags, HW address, Mask and Device. Flag 2 means that the entry is complete.
		f := strings.Fields(line)
		if len(f) < 4 || !strings.EqualFold(f[3], mac) {
			continue
		}
		flags, err := strconv.ParseUint(f[2], 0, 16)
		ip, bad := netip.ParseAddr(f[0])
		if err == nil && bad == nil && flags&2 != 0 && !slices.Contains(found, ip) {
			found = append(found, ip)
		}
	}
	return found
}

// listLeases returns the unexpired leases of a network, newest first.
func listLeases(n *libvirt.Network) []provider.Lease {
	all, err := n.GetDHCPLeases()
	if err != nil {
		return nil // the driver does not support leases
	}
	slices.SortStableFunc(all, func(a, b libvirt.NetworkDHCPLease) int { return b.ExpiryTime.Compare(a.ExpiryTime) })
	var found []provider.Lease
	for _, l := range all {
		ip, err := netip.ParseAddr(l.IPaddr)
		if err != nil || l.ExpiryTime.Unix() > 0 && l.ExpiryTime.Before(time.Now()) {
			continue
		}
		found = append(found, provider.Lease{MAC: strings.ToLower(l.Mac), Address: ip})
	}
	return found
}
