package machine

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// Plan contains all changes that bring the machines to their desired state.
type Plan struct {
	Cluster provider.Cluster `json:"-"`
	Network provider.Network `json:"-"`
	Changes []Change         `json:"changes"` // changes of desired nodes, in the order of the nodes, then the removals
	Places  []Place          `json:"places"`  // places of all desired nodes, including nodes that the plan does not change
	// UnpreparedHosts are hypervisors whose network has to be prepared although no machine is created there:
	// the network is inactive, or its reservations differ.
	UnpreparedHosts []string `json:"ground,omitempty"`
	// Warnings are messages for the user about clones of machines. The plan contains no change for them.
	Warnings []string `json:"warnings,omitempty"`

	hosts   map[string]string // host of each hypervisor, see Inventory.Host
	removed []Place           // places of machines of nodes that the hive does not contain; they keep their addresses until they are removed
}

// Place is a node's hypervisor, MAC and address.
type Place struct {
	Node       string     `json:"node"`
	MAC        string     `json:"mac"`
	Address    netip.Addr `json:"address,omitzero"` // invalid if the address is discovered after the boot
	Hypervisor string     `json:"hypervisor,omitempty"`
}

// Recorded is what the state records of a node's machine.
type Recorded struct {
	Hypervisor string
	MAC        string
	Address    netip.Addr
	Image      provider.Image // image from which the machine was created; its hash is empty if the machine was never created
	Created    bool           // whether the creation of the machine was completed, and no removal has begun since

	exists bool // a complete or incomplete machine was observed
}

// ImageKey identifies the image that a role boots from on hypervisors of a kind.
type ImageKey struct {
	Role string
	Kind provider.Kind
}

// Options are the inputs of Make in addition to the desired machines and the inventories.
type Options struct {
	Cluster  provider.Cluster
	Network  provider.Network
	Recorded map[string]Recorded
	Selected func(node string) bool      // whether the command changes the machine of a node; nil: those of all nodes, and machines that the hive does not contain are removed
	Fixed    map[netip.Addr]string       // addresses that no machine may get, and what uses each address
	Recreate bool                        // recreate machines whose image differs
	Images   map[ImageKey]provider.Image // images of the roles whose machines may be recreated; empty unless Recreate is set
	Closed   map[string]bool             // names of hypervisors that get no new machines, because the hive no longer contains them
}

// PlanError is the reason why no plan can be made, and how to fix it.
type PlanError struct{ Text, Fix string }

func (e *PlanError) Error() string { return e.Text }

// Kind implements [failure.Classified].
func (e *PlanError) Kind() failure.Kind { return failure.Provision }

// Hint returns the fix, which is shown below the message.
func (e *PlanError) Hint() string { return e.Fix }

// Make compares the desired machines with the inventories of all hypervisors and returns the plan. It does
// no I/O.
func Make(desired []Desired, inventories map[string]provider.Inventory, o Options) (Plan, error) {
	p := Plan{Cluster: o.Cluster, Network: o.Network, Changes: []Change{}, Places: []Place{}, hosts: map[string]string{}}
	for name, s := range inventories {
		p.hosts[name] = s.Host
	}
	if err := validateDistinctHosts(inventories, o.Closed); err != nil {
		return p, err
	}
	if err := validateAllowedHypervisors(desired, inventories, o.Closed); err != nil {
		return p, err
	}
	if err := validateNetwork(o.Network); err != nil {
		return p, err
	}
	if err := validateNetworkOwner(inventories, o); err != nil {
		return p, err
	}
	existing, duplicates := indexMachines(inventories, o.Recorded)
	if err := validateRecordedHypervisors(desired, inventories, o.Recorded); err != nil {
		return p, err
	}
	recorded := mergeRecorded(o.Recorded, existing)
	macs := assignMACs(desired, o.Cluster.Name, recorded)
	var addrs map[string]netip.Addr
	if o.Network.Mode.Ours() {
		var err error
		if addrs, err = allocateAddresses(desired, o, inventories, macs, recorded); err != nil {
			return p, err
		}
	}
	p.Warnings = describeCopies(inventories, macs)
	var created []Desired
	var kept []Change
	for _, w := range desired {
		place := Place{Node: w.Node, MAC: macs[w.Node], Address: addrs[w.Node]}
		if f, ok := existing[w.Node]; ok {
			place.Hypervisor = f.hypervisor
			c := decideChange(w, place, f, inventories[f.hypervisor].Kind, recorded[w.Node], o)
			kept = append(kept, c)
			if o.isSelected(w.Node) {
				p.Changes = append(p.Changes, c)
			}
		} else if o.isSelected(w.Node) {
			created = append(created, w)
			c := Change{Node: w.Node, Role: w.Role, Action: Create, Hypervisor: recorded[w.Node].Hypervisor, Address: place.Address, desired: w, place: place}
			if recorded[w.Node].Created {
				c.markLost()
			}
			p.Changes = append(p.Changes, c)
		}
		p.Places = append(p.Places, place)
	}
	for _, node := range slices.Sorted(maps.Keys(existing)) {
		if f := existing[node]; macs[node] == "" {
			p.removed = append(p.removed, Place{Node: node, MAC: f.MAC, Address: f.Address, Hypervisor: f.hypervisor})
		}
	}
	where, err := placeMachines(created, kept, inventories, o.Closed)
	if err != nil {
		return p, err
	}
	for i := range p.Changes {
		if c := &p.Changes[i]; where[c.Node] != "" {
			c.Hypervisor = where[c.Node]
			c.place.Hypervisor, c.Kind = c.Hypervisor, inventories[c.Hypervisor].Kind
			if err := validateNames(o.Cluster, c.Node); err != nil {
				return p, err
			}
			if domain := o.Cluster.MachineName(c.Node); slices.Contains(inventories[c.Hypervisor].Foreign, domain) {
				return p, &PlanError{
					Text: fmt.Sprintf("%s: hypervisor %s already has a machine %s, which does not belong to this cluster", c.Node, c.Hypervisor, domain),
					Fix:  "choose another cluster.name, or remove that machine; if it belongs to this cluster, the state folder was lost: restore it",
				}
			}
		}
	}
	for i := range p.Places {
		if at := where[p.Places[i].Node]; at != "" {
			p.Places[i].Hypervisor = at
		}
	}
	if o.Selected == nil {
		p.Changes = append(p.Changes, findRemovals(desired, existing, duplicates, o.Recorded)...)
	}
	p.UnpreparedHosts = p.findUnpreparedHosts(inventories)
	return p, p.validateRange(inventories)
}

func (o Options) isSelected(node string) bool { return o.Selected == nil || o.Selected(node) }

// Images returns the keys of all images that the plan's changes need.
func (p Plan) Images() []ImageKey {
	var out []ImageKey
	for _, c := range p.Changes {
		if key := (ImageKey{c.Role, c.Kind}); c.NeedsImage() && !slices.Contains(out, key) {
			out = append(out, key)
		}
	}
	return out
}

// HasChanges reports whether the plan changes anything.
func (p Plan) HasChanges() bool {
	return len(p.UnpreparedHosts) > 0 || slices.ContainsFunc(p.Changes, func(c Change) bool { return c.Action != Keep })
}

// Disturbing returns the changes that stop a running machine, see [Change.Disturbs].
func (p Plan) Disturbing() []Change {
	return slices.DeleteFunc(slices.Clone(p.Changes), func(c Change) bool { return !c.Disturbs() })
}

// HasMachine reports whether the node has a machine after the plan was executed.
func (p Plan) HasMachine(node string) bool {
	return slices.ContainsFunc(p.Places, func(at Place) bool { return at.Node == node })
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
