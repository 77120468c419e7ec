package provision

import (
	"maps"
	"slices"
)

// findUnprepared returns the hypervisors that keep machines of the plan although their network is missing,
// inactive or undefined, or lacks reservations.
func (p Plan) findUnprepared(inventories map[string]Inventory) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(inventories)) {
		want := reservationsOn(p.Places, name)
		net := inventories[name].Network
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

// containsReservations reports whether have contains all of want. A surplus reservation, of a node that will
// be removed, does not matter.
func containsReservations(want, have []Reservation) bool {
	for _, r := range want {
		if !slices.ContainsFunc(have, func(h Reservation) bool { return h.MAC == r.MAC && h.Address == r.Address }) {
			return false
		}
	}
	return true
}

// Reservations returns the reservations of all machines on a hypervisor, with those of machines that the
// plan removes: they keep their addresses until they are gone. Hypervisors of one host share the network, so
// their machines are included.
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
