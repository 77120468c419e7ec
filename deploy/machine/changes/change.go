package changes

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

type Change struct {
	Node       string        `json:"node"`
	Role       string        `json:"role,omitempty"`
	Action     Action        `json:"action"`
	Hypervisor string        `json:"hypervisor"`
	Kind       provider.Kind `json:"kind,omitempty"`
	Address    netip.Addr    `json:"address,omitzero"`
	Why        string        `json:"why,omitempty"`

	Lost bool `json:"-"` // whether the machine was created by an earlier run and has lost its disk

	spec provider.Spec // desired state of the machine, with the image from which the existing machine was created
}

type Action string

const (
	Create   Action = "create"
	Keep     Action = "keep"
	Start    Action = "start"    // the machine is off or has crashed
	Resume   Action = "resume"   // the machine is paused
	Finish   Action = "finish"   // complete the machine: an earlier run was interrupted while it created the machine
	Restart  Action = "restart"  // the machine's definition differs from the hive
	Recreate Action = "recreate" // recreating was requested, and the image differs
	Remove   Action = "remove"   // the hive no longer contains the node
)

// ImageKey identifies the image that a role boots from on hypervisors of a kind.
type ImageKey struct {
	Role string
	Kind provider.Kind
}

func (c Change) ImageKey() ImageKey { return ImageKey{Role: c.Role, Kind: c.Kind} }

// Creates reports whether executing the change creates the machine, and its disk from an image.
func (c Change) Creates() bool {
	return c.Action == Create || c.Action == Recreate || c.Action == Finish
}

// Disturbs reports whether the change stops a running machine, or replaces a machine whose disk was lost. The user has
// to confirm such a change.
func (c Change) Disturbs() bool {
	return c.Action == Remove || c.Action == Restart || c.Action == Recreate || c.Lost
}

// Spec returns the desired state of the machine. If the change creates the machine, its disk is created from
// image, and id must be complete. Otherwise image and id may be empty.
func (c Change) Spec(image provider.Image, id provider.Identity) provider.Spec {
	s := c.spec
	if s.NewDisks = c.Creates(); s.NewDisks {
		s.Image = image
	}
	s.Identity = id
	return s
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

func (m *planner) makeCreation(w Desired, place Place, hypervisor string) (Change, error) {
	known := m.recorded[w.Node]
	c := Change{
		Node: w.Node, Role: w.Role, Action: Create, Hypervisor: known.Hypervisor, Address: place.Address, spec: w.specAt(place, provider.Image{}),
	}
	if known.Created != nil {
		c.markLost()
	}
	c.Hypervisor, c.Kind = hypervisor, m.inventories[hypervisor].Kind
	if name := m.Cluster.MachineName(w.Node); slices.Contains(m.inventories[hypervisor].Foreign, name) {
		return c, NewPlanError("choose another cluster.name, or remove that machine; "+
			"if it belongs to this cluster, the state folder was lost: restore it",
			"%s: hypervisor %s already has a machine %s, which does not belong to this cluster", c.Node, hypervisor, name)
	}
	return c, nil
}

func (m *planner) decideChange(w Desired, place Place, f locatedMachine) Change {
	known := m.recorded[w.Node]
	old := *known.Image
	c := Change{
		Node: w.Node, Role: w.Role, Action: Keep, Hypervisor: f.hypervisor, Kind: m.inventories[f.hypervisor].Kind, Address: place.Address,
		spec: w.specAt(place, old),
	}
	wanted := m.Images[c.ImageKey()]
	switch {
	case f.State == provider.Incomplete && known.Created == nil:
		c.Action, c.Why = Finish, "a run was interrupted while it created or removed the machine"
	case f.State == provider.Incomplete && !f.HasDisk:
		c.markLost()
	case m.Recreate && wanted.Hash != "" && wanted.Hash != cmp.Or(f.Image, old.Hash):
		c.Action, c.Why = Recreate, fmt.Sprintf("image %s → %s", cmp.Or(f.Image, old.Hash), wanted.Hash)
	case f.State == provider.Incomplete:
		c.Action, c.Why = Start, fmt.Sprintf("its domain was removed from hypervisor %s, and is defined again around its disk", f.hypervisor)
	case f.Definition != "" && f.Definition != c.spec.Definition():
		c.Action, c.Why = Restart, describeDifference(w, f.Actual)
		if f.State == provider.Off || f.State == provider.Crashed { // the guest does not run, so the change does not stop it
			c.Action = Start
		}
	case f.State == provider.Off:
		c.Action, c.Why = Start, "it is off"
	case f.State == provider.Crashed:
		c.Action, c.Why = Start, "it has crashed"
	case f.State == provider.Paused:
		c.Action, c.Why = Resume, "it is paused"
	case !w.isAllowedOn(f.hypervisor):
		c.Why = fmt.Sprintf("it is not moved, although roles.%s.hypervisors does not contain %s: to move it, run nixbench destroy --on %s, then nixbench apply", w.Role, f.hypervisor, w.Node)
	}
	return c
}

// markLost makes c the creation of a machine that was created before and has no disk any more.
func (c *Change) markLost() {
	c.Action, c.Lost = Create, true
	c.Why = fmt.Sprintf("its disk is no longer on hypervisor %s, so it is created again without its data", c.Hypervisor)
}

func describeDifference(w Desired, f provider.Actual) string {
	var parts []string
	if w.VCPUs != f.VCPUs {
		parts = append(parts, fmt.Sprintf("vcpus %d → %d", f.VCPUs, w.VCPUs))
	}
	if w.Memory != f.Memory {
		parts = append(parts, fmt.Sprintf("memory %s → %s", event.Size(f.Memory), event.Size(w.Memory)))
	}
	if len(parts) == 0 {
		return "its definition differs"
	}
	return strings.Join(parts, ", ")
}

func (m *planner) makeRemoval(f locatedMachine) Change {
	why := "left by an interrupted run"
	if _, isRecorded := m.Recorded[f.Node]; isRecorded {
		why = "the hive no longer contains it"
	}
	return Change{Node: f.Node, Role: f.Role, Action: Remove, Hypervisor: f.hypervisor, Address: f.Address, Why: why}
}

// Desired is the desired state of one node's machine in the hive. In its spec, the MAC and the address are missing, because [Make]
// chooses them. The image and the keys are missing, too, because they are added when the plan is executed.
type Desired struct {
	provider.Spec
	On []string // names of hypervisors on which the machine may be created; empty: any
}

func (w Desired) specAt(p Place, image provider.Image) provider.Spec {
	s := w.Spec
	s.MAC, s.Address, s.Image = p.MAC, p.Address, image
	return s
}

func (w Desired) isAllowedOn(hypervisor string) bool {
	return len(w.On) == 0 || slices.Contains(w.On, hypervisor)
}
