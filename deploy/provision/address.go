package provision

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// allotter hands out the addresses of a network.
type allocator struct {
	net    Network
	used   map[netip.Addr]string // who has it: a node, or why it cannot be given
	leased map[netip.Addr]string // to machines of ours, by their hardware address
}

// Gateway is the address of the hypervisor on a network of ours: the first one.
func (n Network) Gateway() netip.Addr { return n.CIDR.Masked().Addr().Next() }

// lastOf is the last address of a range; in IPv4 that is for broadcasts.
func lastAddress(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	a, _ := netip.AddrFromSlice(bytes)
	return a
}

func newAllocator(net Network) *allocator {
	base := net.CIDR.Masked().Addr()
	return &allocator{net: net, leased: map[netip.Addr]string{}, used: map[netip.Addr]string{
		base: "the network itself", net.Gateway(): "the hypervisor", lastAddress(net.CIDR): "broadcasts",
	}}
}

func (a *allocator) reserve(addr netip.Addr, who string) {
	if addr.IsValid() && a.used[addr] == "" {
		a.used[addr] = who
	}
}

// free tells whether node, with that hardware address, may have it.
func (a *allocator) isFree(addr netip.Addr, mac string) bool {
	return a.net.CIDR.Contains(addr) && a.used[addr] == "" && (a.leased[addr] == "" || a.leased[addr] == mac)
}

// next is the lowest address that nobody has.
func (a *allocator) nextFree(node, mac string) (netip.Addr, error) {
	prefix := a.net.CIDR.Masked()
	for addr := prefix.Addr(); prefix.Contains(addr); addr = addr.Next() {
		if a.isFree(addr, mac) {
			return addr, nil
		}
	}
	return netip.Addr{}, &PlanError{
		Text: fmt.Sprintf("network %s: %s has no free address for %s", a.net.Name, prefix, node),
		Fix:  "a larger cluster.network.cidr, or fewer nodes",
	}
}

// addresses gives each node of a network of ours its address: the one that it has, or
// the lowest that is free. What is reserved or leased to others is left to them. A
// machine that is there keeps its address; if that cannot be, it is an error.
func allocateAddresses(wishes []Desired, o Options, sites map[string]Inventory, macs map[string]string, has map[string]Recorded) (map[string]netip.Addr, error) {
	a := newAllocator(o.Network)
	for _, node := range slices.Sorted(maps.Keys(has)) {
		k := has[node]
		if !k.exists || !k.Address.IsValid() {
			continue
		}
		if _, wished := macs[node]; wished && !o.Network.CIDR.Contains(k.Address) {
			return nil, &PlanError{
				Text: fmt.Sprintf("%s: its machine has the address %s, which is not in %s, the range of network %s", node, k.Address, o.Network.CIDR.Masked(), o.Network.Name),
				Fix:  "put the old cluster.network.cidr back, or begin anew: nixbench destroy, then nixbench apply",
			}
		}
		a.reserve(k.Address, node)
	}
	if err := a.reserveForeign(o, sites, macs, has); err != nil {
		return nil, err
	}
	out := map[string]netip.Addr{}
	for _, w := range wishes {
		if k := has[w.Node]; k.exists && k.Address.IsValid() || a.isFree(k.Address, macs[w.Node]) {
			out[w.Node] = k.Address
			a.reserve(k.Address, w.Node)
		}
	}
	for _, w := range wishes {
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

// takeForeign takes what others have. Where that is what a machine of ours has, it is
// an error.
func (a *allocator) reserveForeign(o Options, sites map[string]Inventory, macs map[string]string, has map[string]Recorded) error {
	ours := map[string]bool{}
	for _, mac := range macs {
		ours[mac] = true
	}
	for _, k := range has {
		ours[k.MAC] = true
	}
	taken := func(addr netip.Addr, why string) error {
		if node := a.used[addr]; has[node].exists && has[node].Address == addr {
			return clashError(o.Network, addr, node, why)
		}
		a.reserve(addr, why)
		return nil
	}
	for _, addr := range slices.SortedFunc(maps.Keys(o.Fixed), netip.Addr.Compare) {
		if err := taken(addr, "it is "+o.Fixed[addr]); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sites)) {
		net := sites[name].Network
		if net == nil {
			continue
		}
		for _, r := range net.Reservations {
			if ours[r.MAC] || r.Node != "" { // those of ours follow the plan
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

func clashError(net Network, addr netip.Addr, node, why string) error {
	return &PlanError{
		Text: fmt.Sprintf("%s: its address %s on network %s is taken: %s", node, addr, net.Name, why),
		Fix:  "free that address, or give " + node + " another one: nixbench destroy --on " + node + ", then nixbench apply",
	}
}
