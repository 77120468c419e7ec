package changes

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine/image"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
)

// Plan contains all changes that bring the machines to their desired state.
type Plan struct {
	Cluster provider.Cluster `json:"-"`
	Network provider.Network `json:"-"`
	Changes []Change         `json:"changes"` // changes of desired nodes, in the order of the nodes, then the removals
	Places  []Place          `json:"places"`  // places of all desired nodes, including nodes that the plan does not change

	removed []Place // places of machines whose nodes the hive does not contain; these keep their addresses until they are removed
}

// Place is a node's hypervisor, MAC and address.
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
	Recorded map[string]state.Machine     // machines in the state; Created is nil for a machine whose removal has begun
	Selected func(node string) bool       // nodes whose machines may change; nil: all nodes; machines without a node in the hive are removed
	Fixed    map[netip.Addr]string        // address that no machine may get → what uses it
	Recreate bool                         // recreate machines whose image differs
	Images   map[image.Key]provider.Image // images of roles whose machines may be recreated; empty if Recreate is false
	Closed   map[string]bool              // hypervisors that the hive no longer contains; they get no new machines
}

// PlanError says why no plan can be made (Text), and how the user can change that (Fix).
type PlanError struct{ Text, Fix string }

func (e *PlanError) Error() string { return e.Text }

// Kind implements [failure.Classified].
func (e *PlanError) Kind() failure.Kind { return failure.Provision }

// Hint returns how to fix the problem. This text is shown below the message.
func (e *PlanError) Hint() string { return e.Fix }

// Make compares the desired machines with the inventories of all hypervisors and returns the plan. It does
// no I/O.
func Make(desired []Desired, inventories map[string]provider.Inventory, o Options) (Plan, error) {
	p := Plan{Cluster: o.Cluster, Network: o.Network, Changes: []Change{}, Places: []Place{}}
	if err := validate(desired, inventories, o); err != nil {
		return p, err
	}
	existing, err := indexMachines(inventories)
	if err != nil {
		return p, err
	}
	recorded := completeRecords(o.Recorded, existing)
	macs := assignMACs(desired, o.Cluster.Name, recorded)
	var addrs map[string]netip.Addr
	if o.Network.Mode.Ours() {
		if addrs, err = allocateAddresses(desired, o, inventories, macs, recorded, existing); err != nil {
			return p, err
		}
	}
	var created []Desired
	var kept []Change
	for _, w := range desired {
		place := Place{Node: w.Node, MAC: macs[w.Node], Address: addrs[w.Node]}
		f, exists := existing[w.Node]
		if place.Hypervisor = f.hypervisor; exists {
			c := decideChange(w, place, f, inventories[f.hypervisor].Kind, recorded[w.Node], o)
			kept = append(kept, c)
			if o.isSelected(w.Node) {
				p.Changes = append(p.Changes, c)
			}
		} else if o.isSelected(w.Node) {
			created = append(created, w)
			p.Changes = append(p.Changes, creation(w, place, recorded[w.Node]))
		}
		p.Places = append(p.Places, place)
	}
	for _, node := range slices.Sorted(maps.Keys(existing)) {
		if f := existing[node]; macs[node] == "" {
			p.removed = append(p.removed, Place{Node: node, MAC: f.MAC, Address: f.Address, Hypervisor: f.hypervisor})
		}
	}
	where, err := placeMachines(created, kept, inventories, o.Closed)
	if err == nil {
		err = p.setPlaces(where, inventories)
	}
	if err != nil {
		return p, err
	}
	if o.Selected == nil {
		p.Changes = append(p.Changes, findRemovals(desired, existing, o.Recorded)...)
	}
	return p, nil
}

// setPlaces sets the hypervisors of new machines.
func (p *Plan) setPlaces(where map[string]string, inventories map[string]provider.Inventory) error {
	for i := range p.Places {
		if at := where[p.Places[i].Node]; at != "" {
			p.Places[i].Hypervisor = at
		}
	}
	for i := range p.Changes {
		c := &p.Changes[i]
		if where[c.Node] == "" {
			continue
		}
		c.Hypervisor = where[c.Node]
		c.Kind = inventories[c.Hypervisor].Kind
		if name := p.Cluster.MachineName(c.Node); slices.Contains(inventories[c.Hypervisor].Foreign, name) {
			return &PlanError{
				Text: fmt.Sprintf("%s: hypervisor %s already has a machine %s, which does not belong to this cluster", c.Node, c.Hypervisor, name),
				Fix:  "choose another cluster.name, or remove that machine; if it belongs to this cluster, the state folder was lost: restore it",
			}
		}
	}
	return nil
}

// AssignsAddresses reports whether nixbench assigns the addresses of all machines, so that they are known before the machines start.
func (p Plan) AssignsAddresses() bool {
	return !slices.ContainsFunc(p.Places, func(place Place) bool { return !place.Address.IsValid() })
}

func (o Options) isSelected(node string) bool { return o.Selected == nil || o.Selected(node) }

// locatedMachine is an observed machine and the hypervisor that it is on.
type locatedMachine struct {
	provider.Actual
	hypervisor string
}

// indexMachines returns the observed machines by node. It returns an error if two hypervisors have a machine of one node, for instance
// after a hypervisor that was given up as lost is back.
func indexMachines(inventories map[string]provider.Inventory) (map[string]locatedMachine, error) {
	out := map[string]locatedMachine{}
	for _, name := range slices.Sorted(maps.Keys(inventories)) {
		for _, m := range inventories[name].Machines {
			if other, twice := out[m.Node]; twice {
				return nil, &PlanError{
					Text: fmt.Sprintf("%s: it has two machines, on hypervisor %s and on hypervisor %s", m.Node, other.hypervisor, name),
					Fix:  "remove the old machine by hand, and its disks; or remove both machines: nixbench destroy --on " + m.Node,
				}
			}
			out[m.Node] = locatedMachine{m, name}
		}
	}
	return out, nil
}

// completeRecords returns the recorded machines. If a field of a record is empty, the value comes from the observed machine of the node.
func completeRecords(recorded map[string]state.Machine, existing map[string]locatedMachine) map[string]state.Machine {
	out := map[string]state.Machine{}
	maps.Copy(out, recorded)
	for node, f := range existing {
		k := out[node]
		if k.MAC == "" {
			k.MAC = f.MAC
		}
		if !k.Address.IsValid() {
			k.Address = f.Address
		}
		if k.Image == nil {
			k.Image = &provider.Image{Hash: f.Image}
		}
		out[node] = k
	}
	return out
}

// assignMACs returns the hardware address of each node.
func assignMACs(desired []Desired, cluster string, recorded map[string]state.Machine) map[string]string {
	out := map[string]string{}
	taken := map[string]bool{}
	for _, k := range recorded {
		taken[k.MAC] = true
	}
	for _, w := range desired {
		mac := recorded[w.Node].MAC
		if mac == "" {
			mac = provider.MAC(cluster, w.Node, func(m string) bool { return taken[m] })
		}
		taken[mac] = true
		out[w.Node] = mac
	}
	return out
}

// Images returns the keys of all images that the plan's changes need.
func (p Plan) Images() []image.Key {
	var out []image.Key
	for _, c := range p.Changes {
		if key := c.ImageKey(); c.NeedsImage() && !slices.Contains(out, key) {
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
