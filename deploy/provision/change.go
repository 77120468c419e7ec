package provision

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Change is what is to be done with one machine.
type Change struct {
	Node       string     `json:"node"`
	Role       string     `json:"role,omitempty"`
	Action     Action     `json:"action"`
	Hypervisor string     `json:"hypervisor"`
	Kind       Kind       `json:"kind,omitempty"`
	Address    netip.Addr `json:"address,omitzero"`
	Why        string     `json:"why,omitempty"`

	desired Desired
	place   Place
	image   Image // what the machine was made from
}

// Action is what is done with a machine.
type Action string

const (
	Create  Action = "create"
	Keep    Action = "keep"
	Start   Action = "start"   // it is off, or has crashed
	Resume  Action = "resume"  // it is paused
	Finish  Action = "finish"  // a run was cut off while making it
	Restart Action = "restart" // its sizes differ
	// Reconnect: its interface is on no bridge. A container is restarted for it.
	Reconnect Action = "reconnect"
	Recreate  Action = "recreate" // it was asked for, and the image differs
	Remove    Action = "remove"   // the hive no longer has it
)

// NeedsImage tells whether the machine is made from one.
func (c Change) NeedsImage() bool {
	return c.Action == Create || c.Action == Recreate || c.Action == Finish
}

// Disturbs tells whether something that runs is stopped by it: people are asked first.
func (c Change) Disturbs() bool {
	return c.Action == Remove || c.Action == Restart || c.Action == Recreate || c.Action == Reconnect && c.Kind == Container
}

// Runs tells whether the machine runs already, and goes on.
func (c Change) Runs() bool { return c.Action == Keep }

// Spec is the wish for the machine. image is what it is made from, where it is made;
// identity need only be complete then.
func (c Change) Spec(image Image, id Identity) Spec {
	if !c.NeedsImage() {
		image = c.image
	}
	s := c.desired.makeSpec(c.place, image)
	id.Method = s.Identity.Method
	s.Identity = id
	return s
}

// MAC is the machine's hardware address.
func (c Change) MAC() string { return c.place.MAC }

// Disk is how large the machine's disks may become.
func (c Change) Disk() uint64 {
	n := c.desired.Disk
	for _, d := range c.desired.Disks {
		n += d
	}
	return n
}

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

// compare decides what is to be done with a machine that is there.
func decideChange(w Desired, place Place, f locatedMachine, kind Kind, image Image, o Options) Change {
	c := Change{
		Node: w.Node, Role: w.Role, Action: Keep, Hypervisor: f.hypervisor, Kind: kind, Address: place.Address,
		desired: w, place: place, image: image,
	}
	wanted := o.Images[ImageKey{w.Role, kind}]
	switch {
	case f.State == Incomplete:
		c.Action, c.Why = Finish, "a run was cut off while making or removing it"
	case o.Recreate && wanted.Hash != "" && wanted.Hash != f.Image:
		c.Action, c.Why = Recreate, fmt.Sprintf("image %s → %s", f.Image, wanted.Hash)
	case f.Definition != w.makeSpec(place, image).Definition():
		c.Action, c.Why = Restart, describeDifference(w, f.Actual)
		if f.State == Off || f.State == Crashed { // nobody is disturbed
			c.Action = Start
		}
	case f.Detached:
		c.Action, c.Why = Reconnect, describeReconnect(o.Network, kind)
	case f.State == Off:
		c.Action, c.Why = Start, "it is off"
	case f.State == Crashed:
		c.Action, c.Why = Start, "it has crashed"
	case f.State == Paused:
		c.Action, c.Why = Resume, "it is paused"
	case !w.allowedOn(f.hypervisor):
		c.Why = fmt.Sprintf("it stays, although roles.%s.hypervisors does not have %s: nixbench destroy --on %s and apply move it", w.Role, f.hypervisor, w.Node)
	}
	return c
}

// detached says why a machine is connected again, and what that does to it.
func describeReconnect(net Network, kind Kind) string {
	why := fmt.Sprintf("network %s was stopped or removed while the machine ran, so its interface is on no bridge; it is connected again", net.Name)
	if kind == Container {
		return why + " by a restart"
	}
	return why + " while it runs"
}

// differs says in what a machine is not as it is wished.
func describeDifference(w Desired, f Actual) string {
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
func findRemovals(wishes []Desired, there map[string]locatedMachine, doubles []locatedMachine, known map[string]Recorded) []Change {
	wished := map[string]bool{}
	for _, w := range wishes {
		wished[w.Node] = true
	}
	var out []Change
	add := func(f locatedMachine, why string) {
		out = append(out, Change{Node: f.Node, Role: f.Role, Action: Remove, Hypervisor: f.hypervisor, Address: f.Address, Why: why})
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
