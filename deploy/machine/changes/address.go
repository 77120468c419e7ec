package changes

import (
	"fmt"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
	"maps"
	"net/netip"
	"slices"
)

// allocator assigns the addresses of a network.
type allocator struct {
	net    provider.Network
	used   map[netip.Addr]string // address → the node that has the address, or why the address is not available
	leased map[netip.Addr]string // address → MAC address of the machine of this cluster that leased the address
}

func newAllocator(net provider.Network) *allocator {
	base := net.CIDR.Masked().Addr()
	return &allocator{net: net, leased: map[netip.Addr]string{}, used: map[netip.Addr]string{
		base: "the network itself", net.Gateway(): "the hypervisor", net.Broadcast(): "broadcasts",
	}}
}

// reserve marks an address as used by who (a node or a description). It does nothing if the address is invalid or already used.
func (a *allocator) reserve(addr netip.Addr, who string) {
	if addr.IsValid() && a.used[addr] == "" {
		a.used[addr] = who
	}
}

// isFree reports whether the machine with this MAC may get the address.
func (a *allocator) isFree(addr netip.Addr, mac string) bool {
	return a.net.CIDR.Contains(addr) && a.used[addr] == "" && (a.leased[addr] == "" || a.leased[addr] == mac)
}

// nextFree returns the lowest free address.
func (a *allocator) nextFree(node, mac string) (netip.Addr, error) {
	prefix := a.net.CIDR.Masked()
	for addr := prefix.Addr(); prefix.Contains(addr); addr = addr.Next() {
		if a.isFree(addr, mac) {
			return addr, nil
		}
	}
	return netip.Addr{}, &PlanError{
		Text: fmt.Sprintf("network %s: %s has no free address for %s", a.net.Name, prefix, node),
		Fix:  "choose a larger cluster.network.cidr, or fewer nodes",
	}
}

// allocateAddresses returns an address for each node of a managed network. A node keeps its existing or recorded
// address; another node gets the lowest free address. An address that is reserved for or leased to another machine is
// not free. It returns an error if an existing machine cannot keep its address.
func allocateAddresses(desired []Desired, o Options, inventories map[string]provider.Inventory, macs map[string]string, recorded map[string]state.Machine, existing map[string]locatedMachine) (map[string]netip.Addr, error) {
	a := newAllocator(o.Network)
	kept := map[string]netip.Addr{} // addresses of existing machines, by node
	for _, node := range slices.Sorted(maps.Keys(existing)) {
		addr := recorded[node].Address
		if !addr.IsValid() {
			continue
		}
		if _, isDesired := macs[node]; isDesired && !o.Network.CIDR.Contains(addr) {
			return nil, &PlanError{
				Text: fmt.Sprintf("%s: its machine has the address %s, which is not in %s, the range of network %s", node, addr, o.Network.CIDR.Masked(), o.Network.Name),
				Fix:  "put the old cluster.network.cidr back, or recreate the machines: nixbench destroy, then nixbench apply",
			}
		}
		kept[node] = addr
		a.reserve(addr, node)
	}
	if err := a.reserveForeignAddresses(o, inventories, macs, recorded, kept); err != nil {
		return nil, err
	}
	out := map[string]netip.Addr{}
	for _, w := range desired {
		if addr := recorded[w.Node].Address; kept[w.Node].IsValid() || a.isFree(addr, macs[w.Node]) {
			out[w.Node] = addr
			a.reserve(addr, w.Node)
		}
	}
	for _, w := range desired {
		if out[w.Node].IsValid() {
			continue
		}
		addr, err := a.nextFree(w.Node, macs[w.Node])
		if err != nil {
			return nil, err
		}
		out[w.Node] = addr
		a.reserve(addr, w.Node)
	}
	return out, nil
}

// reserveForeignAddresses marks the addresses that other machines have as used. It returns an error if an existing
// machine of this cluster has one of these addresses.
func (a *allocator) reserveForeignAddresses(o Options, inventories map[string]provider.Inventory, macs map[string]string, recorded map[string]state.Machine, kept map[string]netip.Addr) error {
	ours := map[string]bool{}
	for _, mac := range macs {
		ours[mac] = true
	}
	for _, k := range recorded {
		ours[k.MAC] = true
	}
	taken := func(addr netip.Addr, why string) error {
		if node := a.used[addr]; node != "" && kept[node] == addr {
			return newClashError(o.Network, addr, node, why)
		}
		a.reserve(addr, why)
		return nil
	}
	for _, addr := range slices.SortedFunc(maps.Keys(o.Fixed), netip.Addr.Compare) {
		if err := taken(addr, "it is "+o.Fixed[addr]); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(inventories)) {
		net := inventories[name].Network
		if net == nil {
			continue
		}
		for _, r := range net.Reservations {
			if ours[r.MAC] || r.Node != "" { // a reservation of this cluster; the plan decides which of these remain
				continue
			}
			if err := taken(r.Address, fmt.Sprintf("on hypervisor %s it is reserved for %s", name, r.MAC)); err != nil {
				return err
			}
		}
		for _, l := range net.Leases {
			if ours[l.MAC] {
				a.leased[l.Address] = l.MAC
			} else if err := taken(l.Address, fmt.Sprintf("on hypervisor %s it is leased to %s", name, l.MAC)); err != nil {
				return err
			}
		}
	}
	return nil
}

func newClashError(net provider.Network, addr netip.Addr, node, why string) error {
	return &PlanError{
		Text: fmt.Sprintf("%s: its address %s on network %s is taken: %s", node, addr, net.Name, why),
		Fix:  "free that address, or give " + node + " another one: nixbench destroy --on " + node + ", then nixbench apply",
	}
}
