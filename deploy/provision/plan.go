package provision

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Plan is all that is to be done so that the machines are as they are wished.
type Plan struct {
	Cluster Cluster  `json:"-"`
	Network Network  `json:"-"`
	Changes []Change `json:"changes"` // nodes in the order of the wishes, then what is removed
	Places  []Place  `json:"places"`  // of all nodes that are wished, those that this plan leaves alone, too
	// Ground tells which hypervisors have to be prepared, although no machine is made
	// there: the network is off, or its reservations differ.
	UnpreparedHosts []string `json:"ground,omitempty"`
	// Warnings are what people should know of and the plan does nothing about.
	Warnings []string `json:"warnings,omitempty"`

	hosts   map[string]string // hypervisors' hosts, where they are known
	removed []Place           // machines of ours that nobody wishes, and that keep their addresses until they are gone
}

// Place is where a node is, and how it is reached.
type Place struct {
	Node       string     `json:"node"`
	MAC        string     `json:"mac"`
	Address    netip.Addr `json:"address,omitzero"` // invalid where it is discovered
	Hypervisor string     `json:"hypervisor,omitempty"`
}

// Recorded is what is remembered of a node's machine.
type Recorded struct {
	Hypervisor string
	MAC        string
	Address    netip.Addr
	Image      Image // what it was made from; without a hash it was never made

	exists bool // it is there, whole or not
}

// ImageKey names an image: what a role boots from on hypervisors of a kind.
type ImageKey struct {
	Role string
	Kind Kind
}

// Options are what Make needs to know beside wishes and sites.
type Options struct {
	Cluster  Cluster
	Network  Network
	Recorded map[string]Recorded
	Selected func(node string) bool // which nodes are meant; nil: all, and only then machines are removed
	Fixed    map[netip.Addr]string  // addresses that are given away, and what they are
	Recreate bool                   // machines whose image differs are made anew
	Images   map[ImageKey]Image     // with Recreate, those of all roles
	Closed   map[string]bool        // hypervisors that get no new machines: the hive no longer names them
}

// PlanError says what cannot be done, and the way out.
type PlanError struct{ Text, Fix string }

func (e *PlanError) Error() string { return e.Text }

// Hint is shown below the message.
func (e *PlanError) Hint() string { return e.Fix }

// Make compares wishes with what is there.
func Make(wishes []Desired, sites map[string]Inventory, o Options) (Plan, error) {
	p := Plan{Cluster: o.Cluster, Network: o.Network, Changes: []Change{}, Places: []Place{}, hosts: map[string]string{}}
	for name, s := range sites {
		p.hosts[name] = s.Host
	}
	if err := validateDistinctHosts(sites, o.Closed); err != nil {
		return p, err
	}
	if err := validateAllowedHypervisors(wishes, sites, o.Closed); err != nil {
		return p, err
	}
	if err := checkNetwork(o.Network); err != nil {
		return p, err
	}
	if err := validateNetworkOwner(sites, o); err != nil {
		return p, err
	}
	there, doubles := indexMachines(sites, o.Recorded)
	if err := validateRecordedHypervisors(wishes, sites, o.Recorded); err != nil {
		return p, err
	}
	has := mergeRecorded(o.Recorded, there)
	macs := assignMACs(wishes, o.Cluster.Name, has)
	var addrs map[string]netip.Addr
	if o.Network.Mode.Ours() {
		var err error
		if addrs, err = allocateAddresses(wishes, o, sites, macs, has); err != nil {
			return p, err
		}
	}
	p.Warnings = warnOfCopies(sites, macs)
	var news []Desired
	var staying []Change
	for _, w := range wishes {
		place := Place{Node: w.Node, MAC: macs[w.Node], Address: addrs[w.Node]}
		if f, ok := there[w.Node]; ok {
			place.Hypervisor = f.hypervisor
			c := decideChange(w, place, f, sites[f.hypervisor].Kind, has[w.Node].Image, o)
			staying = append(staying, c)
			if o.selects(w.Node) {
				p.Changes = append(p.Changes, c)
			}
		} else if o.selects(w.Node) {
			news = append(news, w)
			p.Changes = append(p.Changes, Change{Node: w.Node, Role: w.Role, Action: Create, Address: place.Address, desired: w, place: place})
		}
		p.Places = append(p.Places, place)
	}
	for _, node := range slices.Sorted(maps.Keys(there)) {
		if f := there[node]; macs[node] == "" {
			p.removed = append(p.removed, Place{Node: node, MAC: f.MAC, Address: f.Address, Hypervisor: f.hypervisor})
		}
	}
	where, err := placeMachines(news, staying, sites, o.Closed)
	if err != nil {
		return p, err
	}
	for i := range p.Changes {
		if c := &p.Changes[i]; c.Action == Create {
			c.Hypervisor = where[c.Node]
			c.place.Hypervisor, c.Kind = c.Hypervisor, sites[c.Hypervisor].Kind
			if err := checkNames(o.Cluster, c.Node); err != nil {
				return p, err
			}
			if domain := o.Cluster.Domain(c.Node); slices.Contains(sites[c.Hypervisor].Foreign, domain) {
				return p, &PlanError{
					Text: fmt.Sprintf("%s: hypervisor %s has a machine %s already, and it is not this cluster's", c.Node, c.Hypervisor, domain),
					Fix:  "choose another cluster.name, or remove that machine; if it is this cluster's, its state folder is missing: bring that back",
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
		p.Changes = append(p.Changes, findRemovals(wishes, there, doubles, o.Recorded)...)
	}
	p.UnpreparedHosts = p.findUnprepared(sites)
	return p, p.validateRange(sites)
}

func (o Options) selects(node string) bool { return o.Selected == nil || o.Selected(node) }

// Images are those that the plan needs: machines are made from them.
func (p Plan) Images() []ImageKey {
	var out []ImageKey
	for _, c := range p.Changes {
		if key := (ImageKey{c.Role, c.Kind}); c.NeedsImage() && !slices.Contains(out, key) {
			out = append(out, key)
		}
	}
	return out
}

// Does tells whether anything is to be done at all.
func (p Plan) HasChanges() bool {
	return len(p.UnpreparedHosts) > 0 || slices.ContainsFunc(p.Changes, func(c Change) bool { return c.Action != Keep })
}

// Disturbing are the changes that people are asked about.
func (p Plan) Disturbing() []Change {
	return slices.DeleteFunc(slices.Clone(p.Changes), func(c Change) bool { return !c.Disturbs() })
}

// Wishes tells whether the node is to have a machine when the plan is carried out.
func (p Plan) HasMachine(node string) bool {
	return slices.ContainsFunc(p.Places, func(at Place) bool { return at.Node == node })
}

// Of is the change of a node's machine that stays or is made.
func (p Plan) ChangeOf(node string) (Change, bool) {
	for _, c := range p.Changes {
		if c.Node == node && c.Action != Remove {
			return c, true
		}
	}
	return Change{}, false
}
