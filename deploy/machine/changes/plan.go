// Package changes decides how the machines of a hive change.
//
// [Make] compares the desired machines with the observed and the recorded machines, without any I/O. It returns a
// [Plan], which contains a [Change] for each machine, and chooses the hypervisors, MACs and addresses of new machines.
package changes

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

type Plan struct {
	Cluster provider.Cluster `json:"-"`
	Network provider.Network `json:"-"`
	Changes []Change         `json:"changes"` // changes of desired nodes, in the order of the nodes, then the removals
	Places  []Place          `json:"places"`  // places of all desired nodes, including nodes that the plan does not change

	removed []Place // places of machines whose nodes the hive does not contain; these keep their addresses until they are removed
}

type Place struct {
	Node       string     `json:"node"`
	MAC        string     `json:"mac"`
	Address    netip.Addr `json:"address,omitzero"` // the zero Addr if the address is discovered after the boot
	Hypervisor string     `json:"hypervisor,omitempty"`
}

// Options are the inputs of Make in addition to the desired machines and the inventories.
type Options struct {
	Cluster  provider.Cluster
	Network  provider.Network
	Recorded map[string]state.Machine    // machines in the state; Created is nil for a machine whose removal has begun
	Selected func(node string) bool      // nodes whose machines may change; nil: all nodes; machines without a node in the hive are removed
	Fixed    map[netip.Addr]string       // address that no machine may get → what uses it
	Recreate bool                        // recreate machines whose image differs
	Images   map[ImageKey]provider.Image // images of roles whose machines may be recreated; empty if Recreate is false
	Closed   map[string]bool             // hypervisors that the hive no longer contains; they get no new machines
}

// PlanError says why no plan can be made (Text), and how the user can change that (Fix).
type PlanError struct{ Text, Fix string }

func NewPlanError(fix, format string, args ...any) error {
	return &PlanError{fmt.Sprintf(format, args...), fix}
}

func (e *PlanError) Error() string { return e.Text }

func (e *PlanError) Kind() failure.Kind { return failure.Provision }

func (e *PlanError) Hint() string { return e.Fix }

type planner struct {
	Options
	desired     []Desired
	inventories map[string]provider.Inventory
	names       []string                  // names of the inventories, sorted
	existing    map[string]locatedMachine // by node
	recorded    map[string]state.Machine  // by node; missing fields of existing machines are added
	macs        map[string]string         // by desired node
}

type locatedMachine struct {
	provider.Actual
	hypervisor string
}

// Make compares the desired machines with the inventories of all hypervisors and returns the plan. It does no I/O.
func Make(desired []Desired, inventories map[string]provider.Inventory, o Options) (Plan, error) {
	p := Plan{Cluster: o.Cluster, Network: o.Network, Changes: []Change{}, Places: []Place{}}
	m := &planner{
		Options: o, desired: desired, inventories: inventories, names: slices.Sorted(maps.Keys(inventories)),
		existing: map[string]locatedMachine{}, recorded: map[string]state.Machine{}, macs: map[string]string{},
	}
	if err := cmp.Or(m.validateDistinctHosts(), m.validateAllowedHypervisors(), m.validateNetworkOwner()); err != nil {
		return p, err
	}
	if err := cmp.Or(m.indexMachines(), m.chooseMACs()); err != nil {
		return p, err
	}
	var addrs map[string]netip.Addr
	var err error
	if o.Network.Mode.Ours() {
		if addrs, err = m.allocateAddresses(); err != nil {
			return p, err
		}
	}
	places, kept := map[string]Place{}, map[string]Change{}
	var created []Desired
	for _, w := range desired {
		f, exists := m.existing[w.Node]
		places[w.Node] = Place{Node: w.Node, MAC: m.macs[w.Node], Address: addrs[w.Node], Hypervisor: f.hypervisor}
		if exists {
			kept[w.Node] = m.decideChange(w, places[w.Node], f)
		} else if m.isSelected(w.Node) {
			created = append(created, w)
		}
	}
	where, err := m.placeMachines(created, kept)
	if err != nil {
		return p, err
	}
	for _, w := range desired {
		place := places[w.Node]
		c, exists := kept[w.Node]
		if !exists && m.isSelected(w.Node) {
			if c, err = m.makeCreation(w, place, where[w.Node]); err != nil {
				return p, err
			}
			place.Hypervisor = c.Hypervisor
		}
		if m.isSelected(w.Node) {
			p.Changes = append(p.Changes, c)
		}
		p.Places = append(p.Places, place)
	}
	for _, node := range nixeval.SortedNames(m.existing) {
		if f := m.existing[node]; m.macs[node] == "" {
			p.removed = append(p.removed, Place{Node: node, MAC: f.MAC, Address: f.Address, Hypervisor: f.hypervisor})
			if o.Selected == nil {
				p.Changes = append(p.Changes, m.makeRemoval(f))
			}
		}
	}
	return p, nil
}

// chooseMACs sets the hardware addresses of the desired nodes.
func (m *planner) chooseMACs() error {
	owners := map[string]string{}
	for _, w := range m.desired {
		mac := cmp.Or(m.recorded[w.Node].MAC, provider.MAC(m.Cluster.Name, w.Node))
		if other := owners[mac]; other != "" {
			return NewPlanError("choose another name for "+w.Node, "%s and %s have the same hardware address %s, which is derived from their names", other, w.Node, mac)
		}
		m.macs[w.Node], owners[mac] = mac, w.Node
	}
	return nil
}

func (p Plan) AssignsAddresses() bool {
	return !slices.ContainsFunc(p.Places, func(place Place) bool { return !place.Address.IsValid() })
}

func (o Options) isSelected(node string) bool { return o.Selected == nil || o.Selected(node) }

// indexMachines sets the observed and the recorded machines by node. It returns an error if two hypervisors have a machine of one node,
// for instance after a hypervisor that was given up as lost is back.
func (m *planner) indexMachines() error {
	maps.Copy(m.recorded, m.Recorded)
	for _, name := range m.names {
		for _, f := range m.inventories[name].Machines {
			if other, twice := m.existing[f.Node]; twice {
				return NewPlanError("remove the old machine by hand, and its disks; or remove both machines: nixbench destroy --on "+f.Node,
					"%s: it has two machines, on hypervisor %s and on hypervisor %s", f.Node, other.hypervisor, name)
			}
			m.existing[f.Node] = locatedMachine{f, name}
			k := m.recorded[f.Node]
			k.MAC = cmp.Or(k.MAC, f.MAC)
			k.Address = cmp.Or(k.Address, f.Address)
			k.Image = cmp.Or(k.Image, &provider.Image{Hash: f.Image})
			m.recorded[f.Node] = k
		}
	}
	return nil
}

func (p Plan) Images() []ImageKey {
	var out []ImageKey
	for _, c := range p.Changes {
		if key := c.ImageKey(); c.Creates() && !slices.Contains(out, key) {
			out = append(out, key)
		}
	}
	return out
}

// ChangeOf returns the change of a node's machine, and false if the plan has no change for the node or only a removal.
func (p Plan) ChangeOf(node string) (Change, bool) {
	for _, c := range p.Changes {
		if c.Node == node && c.Action != Remove {
			return c, true
		}
	}
	return Change{}, false
}

// Reservations returns the DHCP reservations of all machines, the same for each hypervisor: so the network's name server knows the machines
// on other hypervisors, too. Machines to be removed are included, because they keep their addresses until then.
func (p Plan) Reservations() []provider.Reservation {
	var out []provider.Reservation
	for _, place := range slices.Concat(p.Places, p.removed) {
		if place.Address.IsValid() && place.MAC != "" {
			out = append(out, provider.Reservation{Node: place.Node, MAC: place.MAC, Address: place.Address})
		}
	}
	return out
}
