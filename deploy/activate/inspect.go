package activate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote"
)

// Node is the observed state of a node. Paths are store paths, or empty.
type Node struct {
	NixOS   bool
	Current string // the running system
	Booted  string // the booted system
	Profile string // the system profile: the system that boots next

	Generation  int          // the profile's current generation; 0 if there is none
	Generations []Generation // of the profile, the newest last
	Deployed    []string     // the systems that nixbench has deployed to the node

	// Engine is the kind of cluster that the running system belongs to, such as kubernetes. It is empty if the system has no
	// engine, and for a system that was built without modules/engine.nix.
	Engine string

	Failed []string // the failed systemd units, sorted by name
	System string   // systemd's state: running, degraded, starting, …
	BootID string
	Uptime time.Duration

	BootedKernel, ProfileKernel Kernel

	Last *Run // nixbench's last run, or nil

	NoKeys bool // nixbench has uploaded no key to the node, and the node has no backup of a key; false if this is not known

	desired         string // the requested system or its specialisation; empty if it is not in the node's store
	specialisations []string
}

// Generation is an entry of the system profile.
type Generation struct {
	Number  int       `json:"generation"`
	Path    string    `json:"path"`
	Time    time.Time `json:"time"`
	Version string    `json:"version,omitempty"` // of NixOS
	Current bool      `json:"current"`           // the node runs this system
	Booted  bool      `json:"booted"`            // the node was booted with this system
	Default bool      `json:"default"`           // the profile points to this generation
}

// Kernel contains the parts of a system that are changed only by a reboot.
type Kernel struct{ Kernel, Initrd, Modules, Params string }

// RebootNeeded reports whether the node would boot another kernel than the running one.
func (n Node) RebootNeeded() bool {
	none := Kernel{}
	return n.BootedKernel != none && n.ProfileKernel != none && n.BootedKernel != n.ProfileKernel
}

// Armed reports whether an activation is running on the node that rolls back unless a client confirms it.
func (n Node) Armed() bool { return n.Last != nil && n.Last.Alive && n.Last.Armed > 0 }

// WithDesired returns a copy of the node. `runs` is the system that the copy should run: the system of a request, or one of that
// system's specialisations.
func (n Node) WithDesired(runs string) Node {
	n.desired = runs
	return n
}

// fingerprint returns a text about the systems and the last run of the node. When an activation starts, the shell script on the
// node compares this text with the present state, and refuses the activation if they differ. For a nil Node the text is empty, and
// the script does not compare.
func (n *Node) fingerprint() string {
	if n == nil {
		return ""
	}
	run, phase := "", ""
	if n.Last != nil {
		run, phase = n.Last.ID, n.Last.phase
	}
	return strings.Join([]string{n.Current, n.Profile, strconv.Itoa(n.Generation), run, phase}, "|")
}

// HasReached reports whether the node has reached a goal: it runs the system `runs` (unless the goal is Boot), it boots the
// system `path` (unless the goal is Test), no activation is unfinished, and the last activation of this system did not fail.
// `runs` is `path` or a specialisation of `path`.
func (n Node) HasReached(goal Goal, path, runs string) bool {
	return !n.HasUnfinishedRun() && Request{Goal: goal, Path: path}.remainingGoal(n.WithDesired(runs)) == ""
}

// GenerationOf returns the generation of a system in the profile; 0 if the profile does not contain the system. Several generations
// may be the same system: GenerationOf prefers the one to which the profile points, and otherwise the newest.
func (n Node) GenerationOf(system string) int {
	if system == n.Profile && n.Generation != 0 {
		return n.Generation
	}
	for _, g := range slices.Backward(n.Generations) {
		if g.Path == system {
			return g.Number
		}
	}
	return 0
}

// Detail says how much of a node's state an inspection reads.
type Detail string

const (
	Full Detail = "" // all fields of Node
	// Systems leaves out the fields Failed and System, and the times and versions of generations, so that the node starts no program
	// except for the shell. The kernels can be compared with each other, but are no store paths.
	Systems Detail = "brief"
	Units   Detail = "units" // like Systems, but with the field Failed
)

// Inspect reads the state of a node with one command. It changes nothing on the node.
func (a *Activator) Inspect(ctx context.Context, node string, h Host, detail Detail) (Node, error) {
	return wrapInspectError(a.inspect(ctx, node, h, Request{}, detail))
}

func (a *Activator) inspect(ctx context.Context, node string, h Host, r Request, detail Detail) (Node, error) {
	conn, err := h.Conn(ctx)
	if err != nil {
		return Node{}, err // without another prefix: err contains the node and the step already
	}
	wait := a.Send.Wait(event.Event{Node: node, Phase: event.Connect, Text: "the node's report of its systems", Until: time.Now().Add(inspectTimeout)})
	defer wait.End()
	return inspectOn(ctx, node, conn, r, detail)
}

// wrapInspectError gives a lost connection or a timeout the kind Unreachable, because nothing has been changed on the node.
func wrapInspectError(n Node, err error) (Node, error) {
	var lost *remote.LostError
	var timeout *remote.TimeoutError
	if errors.As(err, &lost) || errors.As(err, &timeout) {
		return n, failure.WithKind(failure.Unreachable, err)
	}
	return n, err
}

// inspectTimeout is the time limit of an inspection.
const inspectTimeout = 2 * time.Minute

// inspectOn runs the command `inspect` of the shell script over a connection to the node, and returns the parsed state of the node.
func inspectOn(ctx context.Context, node string, conn *remote.Conn, r Request, detail Detail) (Node, error) {
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	p := newNodeParser()
	if err := executeScript(ctx, conn, p.handleLine, "inspect", r.Path, r.Specialisation, string(detail)); err != nil {
		return Node{}, err
	}
	n, err := p.finishNode()
	if err != nil {
		return Node{}, failure.On(node, fmt.Errorf("inspect: %w", err))
	}
	return n, nil
}
