package activate

import (
	"context"
	"fmt"
	"slices"
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

	Generation  int // of the profile; 0 if there is none
	Generations []Generation
	Previous    string // the system before nixbench's last run
	Deployed    []string

	Failed []string // units, by name
	System string   // systemd's state: running, degraded, starting, …
	BootID string
	Uptime time.Duration

	BootedKernel, CurrentKernel, ProfileKernel Kernel

	Last *Run // nixbench's last run, or nil

	StorePath bool // nixos-rebuild has --store-path; only set if the request needs it

	desired         string // the requested system or its specialisation; empty if it is not in the node's store
	desiredKernel   Kernel
	specialisations []string
}

// Generation is an entry of the system profile.
type Generation struct {
	Number  int
	Path    string
	Time    time.Time
	Version string // of NixOS
	Current bool   // it runs now
	Booted  bool
	Default bool // the profile points to it
}

// Kernel is the part of a system that only a reboot changes.
type Kernel struct{ Kernel, Initrd, Modules, Params string }

// RebootNeeded reports whether the node would boot another kernel than it has.
func (n Node) RebootNeeded() bool {
	none := Kernel{}
	return n.BootedKernel != none && n.ProfileKernel != none && n.BootedKernel != n.ProfileKernel
}

// Armed reports whether the node rolls back automatically unless the run is confirmed.
func (n Node) Armed() bool { return n.Last != nil && n.Last.Alive && n.Last.Armed > 0 }

// WithDesired returns the node with a desired running system: that of a request, or one of
// its specialisations.
func (n Node) WithDesired(runs string) Node {
	n.desired = runs
	return n
}

// HasReached reports whether the node has reached a goal: it runs the system `runs` and boots
// `path`, as far as the goal asks for that, no run is unfinished, and the last run to this
// system did not fail. The two paths differ if `runs` is a specialisation of `path`.
func (n Node) HasReached(goal Goal, path, runs string) bool {
	return !n.HasUnfinishedRun() && Request{Goal: goal, Path: path}.remainingGoal(n.WithDesired(runs)) == ""
}

// GenerationOf returns the newest generation of the profile with this system, or 0 if there
// is none.
func (n Node) GenerationOf(system string) int {
	for _, g := range slices.Backward(n.Generations) {
		if g.Path == system {
			return g.Number
		}
	}
	return 0
}

// Inspect reads the state of a node with one command, which changes nothing.
func (a *Activator) Inspect(ctx context.Context, node string, h Host) (Node, error) {
	return a.inspect(ctx, node, h, Request{})
}

func (a *Activator) inspect(ctx context.Context, node string, h Host, r Request) (Node, error) {
	conn, err := h.Conn(ctx)
	if err != nil {
		return Node{}, err // contains the node and the step already
	}
	wait := a.Send.Wait(event.Event{Node: node, Phase: event.Connect, Text: "the node's report of its systems", Until: time.Now().Add(inspectTimeout)})
	defer wait.End()
	return inspectOn(ctx, node, conn, r)
}

// inspectTimeout is the time limit of an inspection.
const inspectTimeout = 2 * time.Minute

func inspectOn(ctx context.Context, node string, conn *remote.Conn, r Request) (Node, error) {
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	p := newNodeParser()
	if err := runFromStdin(ctx, conn, p.handleLine, "inspect", r.Path, r.Specialisation, r.Activator); err != nil {
		return Node{}, err
	}
	n, err := p.finish()
	if err != nil {
		return Node{}, failure.On(node, fmt.Errorf("inspect: %w", err))
	}
	return n, nil
}
