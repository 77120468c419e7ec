package stages

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
	"github.com/nixbench/nixbench/nixeval"
)

// RollbackTo is the target of a rollback. The zero value means the systems that the nodes ran before the last
// run.
type RollbackTo struct {
	Generation int       // number of a generation in the profile of each node; 0: not set
	Run        *runs.Run // the target is the system that this run deployed on each node; nil: not set
}

// Step is what a rollback or a reboot does on one node.
type Step struct {
	Node       nixeval.Node
	From       activate.Node
	Reboot     bool   // the node boots the system Path of its profile; otherwise it activates Path
	Path       string // the system to activate or boot
	Generation int    // number of this system's generation in the node's profile; 0: the profile does not contain it
	SkipReason string // why the node is not changed; empty if the node is changed
	Err        error  // why the node cannot be changed, or nil
}

// PlanRollback decides the target of each node. It returns an error if the target is invalid for the whole rollback; an error of one
// node is in the node's step. It calls inspect for the nodes that the rollback may change, and for no others.
//
// The last run is the latest run that changed one of these nodes or of the nodes that are away. A node that the last run did not
// change is not rolled back, because that would undo an earlier run.
func PlanRollback(nodes []nixeval.Node, away []string, recorded map[string]state.Node, to RollbackTo, inspect func([]nixeval.Node) []fleet.Outcome[activate.Node]) ([]Step, error) {
	var last *state.Deployment
	names := slices.Clone(away)
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	for _, name := range names {
		if b := recorded[name].Before; b != nil && (last == nil || b.Time.After(last.Time)) {
			last = b
		}
	}
	steps := make([]Step, len(nodes))
	var lost []string
	var affected []nixeval.Node
	for i, n := range nodes {
		s := Step{Node: n}
		switch b := recorded[n.Name].Before; {
		case to.Generation != 0:
		case to.Run != nil:
			s.setRunTarget(to.Run)
		case last == nil || b != nil && b.Run == last.Run && b.Path == "":
			lost = append(lost, n.Name)
		case b == nil || b.Run != last.Run:
			s.SkipReason = "not changed by run " + last.Run
		default:
			s.Path = b.Path
		}
		if steps[i] = s; s.SkipReason == "" {
			affected = append(affected, n)
		}
	}
	if len(lost) > 0 {
		return nil, failure.WithHint(failure.NewUsage("roll back: there is no record of an earlier system of %s: no run from this state folder has changed it", strings.Join(lost, ", ")),
			"--to N selects a generation: nixbench generations lists them")
	}
	if len(affected) == 0 {
		return steps, nil
	}
	for _, o := range inspect(affected) {
		i := slices.IndexFunc(steps, func(s Step) bool { return s.Node.Name == o.Node.Name })
		steps[i].setObserved(o, to)
	}
	return steps, nil
}

// setObserved completes a step with the inspection of its node.
func (s *Step) setObserved(o fleet.Outcome[activate.Node], to RollbackTo) {
	s.From, s.Err = o.Value, o.Err
	switch {
	case s.Err != nil:
		return
	case to.Generation != 0:
		s.setGenerationTarget(to.Generation)
	default:
		s.Generation = node.GenerationOf(s.From, s.Path)
	}
	if s.Err == nil && s.From.Current == s.Path && s.From.Profile == s.Path {
		s.SkipReason = "runs it already"
	}
}

// setGenerationTarget makes the system of a generation the target of the step. If the node no longer has this generation, it sets
// s.Err.
func (s *Step) setGenerationTarget(number int) {
	for _, g := range s.From.Generations {
		if g.Number == number {
			s.Path, s.Generation = g.Path, number
			return
		}
	}
	s.Err = node.NewGoneError(s.Node.Name, fmt.Sprintf("generation %d", number))
}

// setRunTarget makes the system that run r deployed on the node the target of the step. If r deployed no system on the node, it
// sets s.SkipReason.
func (s *Step) setRunTarget(r *runs.Run) {
	i := slices.IndexFunc(r.Nodes, func(n state.NodeResult) bool { return n.Node == s.Node.Name })
	switch {
	case i < 0:
		s.SkipReason = "was not part of run " + r.ID
	case r.Nodes[i].Path == "" || r.Nodes[i].Outcome != state.Switched && r.Nodes[i].Outcome != state.Unchanged:
		s.SkipReason = "run " + r.ID + " left no new system on it"
	default:
		s.Path = r.Nodes[i].Path
	}
}

func (s Step) ChangesNode() bool { return s.Err == nil && s.SkipReason == "" }

func (s Step) String() string {
	switch {
	case s.Err != nil:
		return fleet.Brief(s.Node.Name, s.Err)
	case s.SkipReason != "":
		return "stays: " + s.SkipReason
	case s.Generation != 0:
		return fmt.Sprintf("%s → generation %d", formatGeneration(s.From), s.Generation)
	}
	return fmt.Sprintf("%s → %s", formatGeneration(s.From), s.Path)
}

func formatGeneration(n activate.Node) string {
	if g := node.GenerationOf(n, n.Current); g != 0 {
		return fmt.Sprintf("generation %d", g)
	}
	return "what runs now"
}
