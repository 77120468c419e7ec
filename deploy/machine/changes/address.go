package changes

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/nixeval"
)

// allocator assigns the addresses of a network.
type allocator struct {
	net    provider.Network
	used   map[netip.Addr]string // address → why it is not available
	leased map[netip.Addr]string // address → MAC address of the machine of this cluster that leased the address
}

// reserve marks an address as not available. It does nothing if the address is invalid or already used.
func (a *allocator) reserve(addr netip.Addr, why string) {
	if addr.IsValid() && a.used[addr] == "" {
		a.used[addr] = why
	}
}

func (a *allocator) isFree(addr netip.Addr, mac string) bool {
	return a.net.CIDR.Contains(addr) && a.used[addr] == "" && (a.leased[addr] == "" || a.leased[addr] == mac)
}

// allocateAddresses returns an address for each node of a managed network. A node keeps its existing or recorded
// address; another node gets the lowest free address. An address that is reserved for or leased to another machine is
// not free. It returns an error if an existing machine cannot keep its address.
func (m *planner) allocateAddresses() (map[string]netip.Addr, error) {
	net, cidr := m.Network, m.Network.CIDR.Masked()
	a := &allocator{net: net, leased: map[netip.Addr]string{}, used: map[netip.Addr]string{
		cidr.Addr(): "it is the network's own", net.Gateway(): "it is the hypervisor's", net.Broadcast(): "it is for broadcasts",
	}}
	m.reserveForeignAddresses(a)
	out := map[string]netip.Addr{}
	for _, node := range nixeval.SortedNames(m.existing) {
		addr := m.recorded[node].Address
		_, isDesired := m.macs[node]
		switch why := a.used[addr]; {
		case !addr.IsValid():
			continue
		case isDesired && !cidr.Contains(addr):
			return nil, NewPlanError("put the old cluster.network.cidr back, or recreate the machines: nixbench destroy, then nixbench apply",
				"%s: its machine has the address %s, which is not in %s, the range of network %s", node, addr, cidr, net.Name)
		case why != "":
			return nil, NewPlanError("free that address, or give "+node+" another one: nixbench destroy --on "+node+", then nixbench apply",
				"%s: its address %s on network %s is taken: %s", node, addr, net.Name, why)
		}
		a.reserve(addr, "it is that of "+node)
		out[node] = addr
	}
	for _, w := range m.desired {
		if addr := m.recorded[w.Node].Address; !out[w.Node].IsValid() && a.isFree(addr, m.macs[w.Node]) {
			out[w.Node] = addr
			a.reserve(addr, "it is that of "+w.Node)
		}
	}
	for _, w := range m.desired {
		if out[w.Node].IsValid() {
			continue
		}
		addr := cidr.Addr()
		for cidr.Contains(addr) && !a.isFree(addr, m.macs[w.Node]) {
			addr = addr.Next()
		}
		if !cidr.Contains(addr) {
			return nil, NewPlanError("choose a larger cluster.network.cidr, or fewer nodes",
				"network %s: %s has no free address for %s", net.Name, cidr, w.Node)
		}
		out[w.Node] = addr
		a.reserve(addr, "it is that of "+w.Node)
	}
	return out, nil
}

// reserveForeignAddresses marks the addresses that other machines have, and those that machines of this cluster have leased.
func (m *planner) reserveForeignAddresses(a *allocator) {
	ours := map[string]bool{}
	for _, mac := range m.macs {
		ours[mac] = true
	}
	for _, k := range m.recorded {
		ours[k.MAC] = true
	}
	for _, addr := range slices.SortedFunc(maps.Keys(m.Fixed), netip.Addr.Compare) {
		a.reserve(addr, "it is "+m.Fixed[addr])
	}
	for _, name := range m.names {
		net := m.inventories[name].Network
		if net == nil {
			continue
		}
		for _, r := range net.Reservations {
			if !ours[r.MAC] && r.Node == "" { // not a reservation of this cluster; the plan decides which of these remain
				a.reserve(r.Address, fmt.Sprintf("on hypervisor %s it is reserved for %s", name, r.MAC))
			}
		}
		for _, l := range net.Leases {
			if ours[l.MAC] {
				a.leased[l.Address] = l.MAC
			} else {
				a.reserve(l.Address, fmt.Sprintf("on hypervisor %s it is leased to %s", name, l.MAC))
			}
		}
	}
}
