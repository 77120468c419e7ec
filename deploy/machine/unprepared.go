package machine

import (
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"maps"
	"slices"
)

// findUnpreparedHosts returns the hypervisors that have machines of the plan and whose network is missing, inactive or
// undefined, or does not have all reservations.
func (p Plan) findUnpreparedHosts(inventories map[string]provider.Inventory) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(inventories)) {
		want := listReservations(p.Places, name)
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

// containsReservations reports whether have contains all reservations in want. have may contain other reservations,
// of machines to be removed.
func containsReservations(want, have []provider.Reservation) bool {
	for _, r := range want {
		if !slices.ContainsFunc(have, func(h provider.Reservation) bool { return h.MAC == r.MAC && h.Address == r.Address }) {
			return false
		}
	}
	return true
}

// Reservations returns the reservations of all machines on a hypervisor, including machines to be
// removed, which keep their addresses until they are removed. Hypervisors of one host share the network, so the
// machines of all hypervisors of the host are included.
func (p Plan) Reservations(hypervisor string) []provider.Reservation {
	var out []provider.Reservation
	for _, name := range slices.Sorted(maps.Keys(p.hosts)) {
		if name == hypervisor || p.hosts[name] != "" && p.hosts[name] == p.hosts[hypervisor] {
			out = append(out, listReservations(p.Places, name)...)
			out = append(out, listReservations(p.removed, name)...)
		}
	}
	return out
}

func listReservations(places []Place, hypervisor string) []provider.Reservation {
	var out []provider.Reservation
	for _, pl := range places {
		if pl.Hypervisor == hypervisor && pl.Address.IsValid() && pl.MAC != "" {
			out = append(out, provider.Reservation{Node: pl.Node, MAC: pl.MAC, Address: pl.Address})
		}
	}
	return out
}
