package provision

import (
	"maps"
	"slices"
)

// unprepared are the hypervisors with machines that run where the network does not, is not defined, or
// has other reservations than it should.
func (p Plan) findUnprepared(sites map[string]Inventory) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(sites)) {
		want := reservationsOn(p.Places, name)
		net := sites[name].Network
		switch {
		case len(want) == 0 && (net == nil || !p.Network.Mode.Ours()):
		case !p.usesHypervisor(name):
		case net == nil || !net.Active || p.Network.Mode.Ours() && net.Transient || p.Network.Mode.Ours() && !containsReservations(want, net.Reservations):
			out = append(out, name)
		}
	}
	return out
}

func (p Plan) usesHypervisor(hypervisor string) bool {
	return slices.ContainsFunc(p.Places, func(pl Place) bool { return pl.Hypervisor == hypervisor })
}

// sameReservations tells whether ours are those that are wanted. Whether one more is
// there, of a node that is about to be removed, does not matter.
func containsReservations(want, have []Reservation) bool {
	for _, r := range want {
		if !slices.ContainsFunc(have, func(h Reservation) bool { return h.MAC == r.MAC && h.Address == r.Address }) {
			return false
		}
	}
	return true
}

// Reservations are those of a hypervisor's machines, also of those that are to be
// removed: until then they need their addresses. Hypervisors of one host have one
// network of that name, and so all their machines are in it.
func (p Plan) Reservations(hypervisor string) []Reservation {
	var out []Reservation
	for _, name := range slices.Sorted(maps.Keys(p.hosts)) {
		if name == hypervisor || p.hosts[name] != "" && p.hosts[name] == p.hosts[hypervisor] {
			out = append(out, reservationsOn(p.Places, name)...)
			out = append(out, reservationsOn(p.removed, name)...)
		}
	}
	return out
}

func reservationsOn(places []Place, hypervisor string) []Reservation {
	var out []Reservation
	for _, pl := range places {
		if pl.Hypervisor == hypervisor && pl.Address.IsValid() && pl.MAC != "" {
			out = append(out, Reservation{Node: pl.Node, MAC: pl.MAC, Address: pl.Address})
		}
	}
	return out
}
