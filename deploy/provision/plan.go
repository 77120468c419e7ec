package provision

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Plan is all that is to be done so that the machines are as they are wished.
type Plan struct {
	Cluster Cluster  `json:"-"`
	Network Network  `json:"-"`
	Changes []Change `json:"changes"` // nodes in the order of the wishes, then what is removed
	Places  []Place  `json:"places"`  // of all nodes that are wished, those that this plan leaves alone, too
	// Ground tells which hypervisors have to be prepared, although no machine is made
	// there: the network is off, or its reservations differ.
	Ground []string `json:"ground,omitempty"`

	hosts  map[string]string // hypervisors' hosts, where they are known
	others []Place           // machines of ours that nobody wishes, and that keep their addresses until they are gone
}

// Change is what is to be done with one machine.
type Change struct {
	Node       string     `json:"node"`
	Role       string     `json:"role,omitempty"`
	Action     Action     `json:"action"`
	Hypervisor string     `json:"hypervisor"`
	Kind       Kind       `json:"kind,omitempty"`
	Address    netip.Addr `json:"address,omitzero"`
	Why        string     `json:"why,omitempty"`

	wish  Wish
	place Place
	image Image // what the machine was made from
}

// Action is what is done with a machine.
type Action string

const (
	Create   Action = "create"
	Keep     Action = "keep"
	Start    Action = "start"    // it is off
	Finish   Action = "finish"   // a run was cut off while making it
	Restart  Action = "restart"  // its sizes differ
	Recreate Action = "recreate" // it was asked for, and the image differs
	Remove   Action = "remove"   // the hive no longer has it
)

// Place is where a node is, and how it is reached.
type Place struct {
	Node       string     `json:"node"`
	MAC        string     `json:"mac"`
	Address    netip.Addr `json:"address,omitzero"` // invalid where it is discovered
	Hypervisor string     `json:"hypervisor,omitempty"`
}

// Known is what is remembered of a node's machine.
type Known struct {
	Hypervisor string
	MAC        string
	Address    netip.Addr
	Image      Image // what it was made from; without a hash it was never made

	made bool // it is there, whole or not
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
	Known    map[string]Known
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

// found is a machine, and where it is.
type found struct {
	Found
	at string
}

// Make compares wishes with what is there.
func Make(wishes []Wish, sites map[string]Site, o Options) (Plan, error) {
	p := Plan{Cluster: o.Cluster, Network: o.Network, Changes: []Change{}, Places: []Place{}, hosts: map[string]string{}}
	for name, s := range sites {
		p.hosts[name] = s.Host
	}
	if err := twins(sites, o.Closed); err != nil {
		return p, err
	}
	if err := foreign(sites, o); err != nil {
		return p, err
	}
	there, doubles := machines(sites, o.Known)
	if err := absent(wishes, sites, o.Known); err != nil {
		return p, err
	}
	has := known(o.Known, there)
	macs := hardware(wishes, o.Cluster.Name, has)
	var addrs map[string]netip.Addr
	if o.Network.Mode.Ours() {
		var err error
		if addrs, err = addresses(wishes, o, sites, macs, has); err != nil {
			return p, err
		}
	}
	var news []Wish
	var staying []Change
	for _, w := range wishes {
		place := Place{Node: w.Node, MAC: macs[w.Node], Address: addrs[w.Node]}
		if f, ok := there[w.Node]; ok {
			place.Hypervisor = f.at
			c := compare(w, place, f, sites[f.at].Kind, has[w.Node].Image, o)
			staying = append(staying, c)
			if o.means(w.Node) {
				p.Changes = append(p.Changes, c)
			}
		} else if o.means(w.Node) {
			news = append(news, w)
			p.Changes = append(p.Changes, Change{Node: w.Node, Role: w.Role, Action: Create, Address: place.Address, wish: w, place: place})
		}
		p.Places = append(p.Places, place)
	}
	for _, node := range slices.Sorted(maps.Keys(there)) {
		if f := there[node]; macs[node] == "" {
			p.others = append(p.others, Place{Node: node, MAC: f.MAC, Address: f.Address, Hypervisor: f.at})
		}
	}
	where, err := place(news, staying, sites, o.Closed)
	if err != nil {
		return p, err
	}
	for i := range p.Changes {
		if c := &p.Changes[i]; c.Action == Create {
			c.Hypervisor = where[c.Node]
			c.place.Hypervisor, c.Kind = c.Hypervisor, sites[c.Hypervisor].Kind
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
		p.Changes = append(p.Changes, removals(wishes, there, doubles, o.Known)...)
	}
	p.Ground = p.unprepared(sites)
	return p, nil
}

func (o Options) means(node string) bool { return o.Selected == nil || o.Selected(node) }

// machines are those that are there, by node. Of one that is in two places the one
// that is remembered counts; the others are doubles.
func machines(sites map[string]Site, known map[string]Known) (map[string]found, []found) {
	out := map[string]found{}
	var doubles []found
	for _, name := range slices.Sorted(maps.Keys(sites)) {
		for _, m := range sites[name].Machines {
			f := found{m, name}
			old, twice := out[m.Node]
			switch {
			case !twice:
				out[m.Node] = f
			case known[m.Node].Hypervisor == name:
				out[m.Node] = f
				doubles = append(doubles, old)
			default:
				doubles = append(doubles, f)
			}
		}
	}
	return out, doubles
}

// twins refuses two names for one hypervisor: each machine there would be found twice, and
// one of the two removed.
func twins(sites map[string]Site, closed map[string]bool) error {
	type hypervisor struct {
		host string
		kind Kind
	}
	first := map[hypervisor]string{}
	for _, name := range slices.Sorted(maps.Keys(sites)) {
		h := hypervisor{sites[name].Host, sites[name].Kind}
		other, twice := first[h]
		if h.host == "" || !twice {
			first[h] = name
			continue
		}
		e := &PlanError{
			Text: fmt.Sprintf("hypervisors %s and %s are one: both are on host %s and run the same kind of machines", other, name, strings.Fields(h.host)[0]),
			Fix:  "keep one of them in cluster.hypervisors",
		}
		for old, now := range map[string]string{other: name, name: other} {
			if closed[old] {
				e.Text += fmt.Sprintf("; its machines know it as %s", old)
				e.Fix = fmt.Sprintf("call it %s again in cluster.hypervisors, not %s", old, now)
			}
		}
		return e
	}
	return nil
}

// foreign refuses to plan on a network that somebody else has made under the name of ours. One
// who has lost the state folder comes here, too: without it the cluster has another id.
func foreign(sites map[string]Site, o Options) error {
	for _, name := range slices.Sorted(maps.Keys(sites)) {
		if net := sites[name].Network; o.Network.Mode.Ours() && net != nil && !net.Ours {
			return &PlanError{
				Text: fmt.Sprintf("hypervisor %s has a network %s already, and it is not this cluster's", name, o.Network.Name),
				Fix:  `choose another cluster.network.name, or use the network as it is with cluster.network.mode = "existing"; if it is this cluster's, its state folder is missing: bring that back`,
			}
		}
	}
	return nil
}

// absent refuses to make a second machine for a node whose first one is on a
// hypervisor that was not looked at.
func absent(wishes []Wish, sites map[string]Site, known map[string]Known) error {
	for _, w := range wishes {
		k := known[w.Node]
		if _, looked := sites[k.Hypervisor]; k.Image.Hash != "" && !looked {
			return &PlanError{
				Text: fmt.Sprintf("%s: its machine is on hypervisor %s, which the hive no longer names", w.Node, k.Hypervisor),
				Fix:  "put it back into cluster.hypervisors, or remove the machine first: nixbench destroy --on " + w.Node,
			}
		}
	}
	return nil
}

// known is what is remembered, and what machines themselves say where it is not.
func known(remembered map[string]Known, there map[string]found) map[string]Known {
	out := map[string]Known{}
	maps.Copy(out, remembered)
	for node, f := range there {
		k := out[node]
		k.made = true
		k.MAC = cmp.Or(k.MAC, f.MAC)
		if !k.Address.IsValid() {
			k.Address = f.Address
		}
		k.Image.Hash = cmp.Or(k.Image.Hash, f.Image)
		out[node] = k
	}
	return out
}

// hardware gives every node its hardware address.
func hardware(wishes []Wish, cluster string, has map[string]Known) map[string]string {
	out := map[string]string{}
	owner := map[string]bool{}
	for _, k := range has {
		owner[k.MAC] = true
	}
	for _, w := range wishes {
		mac := has[w.Node].MAC
		if mac == "" {
			mac = MAC(cluster, w.Node, func(m string) bool { return owner[m] })
		}
		owner[mac] = true
		out[w.Node] = mac
	}
	return out
}

// compare decides what is to be done with a machine that is there.
func compare(w Wish, place Place, f found, kind Kind, image Image, o Options) Change {
	c := Change{
		Node: w.Node, Role: w.Role, Action: Keep, Hypervisor: f.at, Kind: kind, Address: place.Address,
		wish: w, place: place, image: image,
	}
	wanted := o.Images[ImageKey{w.Role, kind}]
	switch {
	case f.State == Half:
		c.Action, c.Why = Finish, "a run was cut off while making or removing it"
	case o.Recreate && wanted.Hash != "" && wanted.Hash != f.Image:
		c.Action, c.Why = Recreate, fmt.Sprintf("image %s → %s", f.Image, wanted.Hash)
	case f.Definition != w.spec(place, image).Definition():
		c.Action, c.Why = Restart, differs(w, f.Found)
		if f.State == Off { // nobody is disturbed
			c.Action = Start
		}
	case f.State == Off:
		c.Action, c.Why = Start, "it is off"
	}
	return c
}

// differs says in what a machine is not as it is wished.
func differs(w Wish, f Found) string {
	var parts []string
	if w.VCPUs != f.VCPUs {
		parts = append(parts, fmt.Sprintf("vcpus %d → %d", f.VCPUs, w.VCPUs))
	}
	if w.Memory != f.Memory {
		parts = append(parts, fmt.Sprintf("memory %s → %s", SizeText(f.Memory), SizeText(w.Memory)))
	}
	if len(parts) == 0 {
		return "its definition differs"
	}
	return strings.Join(parts, ", ")
}

// removals are the machines that nobody wishes.
func removals(wishes []Wish, there map[string]found, doubles []found, known map[string]Known) []Change {
	wished := map[string]bool{}
	for _, w := range wishes {
		wished[w.Node] = true
	}
	var out []Change
	add := func(f found, why string) {
		out = append(out, Change{Node: f.Node, Role: f.Role, Action: Remove, Hypervisor: f.at, Address: f.Address, Why: why})
	}
	for _, node := range slices.Sorted(maps.Keys(there)) {
		switch _, remembered := known[node]; {
		case wished[node]:
		case remembered:
			add(there[node], "the hive no longer has it")
		default:
			add(there[node], "left behind by a run that was cut off")
		}
	}
	for _, f := range doubles {
		add(f, "a second machine of that node")
	}
	return out
}

// unprepared are the hypervisors with machines that run where the network does not, or
// has other reservations than it should.
func (p Plan) unprepared(sites map[string]Site) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(sites)) {
		want := reservations(p.Places, name)
		net := sites[name].Network
		switch {
		case len(want) == 0 && (net == nil || !p.Network.Mode.Ours()):
		case !p.houses(name):
		case net == nil || !net.Active || p.Network.Mode.Ours() && !sameReservations(want, net.Reservations):
			out = append(out, name)
		}
	}
	return out
}

func (p Plan) houses(hypervisor string) bool {
	return slices.ContainsFunc(p.Places, func(pl Place) bool { return pl.Hypervisor == hypervisor })
}

// sameReservations tells whether ours are those that are wanted. Whether one more is
// there, of a node that is about to be removed, does not matter.
func sameReservations(want, have []Reservation) bool {
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
			out = append(out, reservations(p.Places, name)...)
			out = append(out, reservations(p.others, name)...)
		}
	}
	return out
}

func reservations(places []Place, hypervisor string) []Reservation {
	var out []Reservation
	for _, pl := range places {
		if pl.Hypervisor == hypervisor && pl.Address.IsValid() && pl.MAC != "" {
			out = append(out, Reservation{Node: pl.Node, MAC: pl.MAC, Address: pl.Address})
		}
	}
	return out
}

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

// NeedsImage tells whether the machine is made from one.
func (c Change) NeedsImage() bool {
	return c.Action == Create || c.Action == Recreate || c.Action == Finish
}

// Disturbs tells whether something that runs is stopped by it: people are asked first.
func (c Change) Disturbs() bool {
	return c.Action == Remove || c.Action == Restart || c.Action == Recreate
}

// Runs tells whether the machine runs already, and goes on.
func (c Change) Runs() bool { return c.Action == Keep }

// Spec is the wish for the machine. image is what it is made from, where it is made;
// identity need only be complete then.
func (c Change) Spec(image Image, id Identity) Spec {
	if !c.NeedsImage() {
		image = c.image
	}
	s := c.wish.spec(c.place, image)
	id.Method = s.Identity.Method
	s.Identity = id
	return s
}

// MAC is the machine's hardware address.
func (c Change) MAC() string { return c.place.MAC }

func (c Change) String() string {
	text := string(c.Action) + " " + c.Node
	if c.Hypervisor != "" {
		text += " on " + c.Hypervisor
	}
	if c.Why != "" {
		text += ": " + c.Why
	}
	return text
}

// Does tells whether anything is to be done at all.
func (p Plan) Does() bool {
	return len(p.Ground) > 0 || slices.ContainsFunc(p.Changes, func(c Change) bool { return c.Action != Keep })
}

// Disturbing are the changes that people are asked about.
func (p Plan) Disturbing() []Change {
	return slices.DeleteFunc(slices.Clone(p.Changes), func(c Change) bool { return !c.Disturbs() })
}

// Of is the change of a node's machine that stays or is made.
func (p Plan) Of(node string) (Change, bool) {
	for _, c := range p.Changes {
		if c.Node == node && c.Action != Remove {
			return c, true
		}
	}
	return Change{}, false
}

// Disk is how large the machine's disks may become.
func (c Change) Disk() uint64 {
	n := c.wish.Disk
	for _, d := range c.wish.Disks {
		n += d
	}
	return n
}
