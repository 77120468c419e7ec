package stages

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/rollout"
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

// Step is what a rollback does on one node.
type Step struct {
	Node       nixeval.Node
	From       activate.Node
	Path       string // the system to activate
	Generation int    // number of this system's generation in the node's profile; 0: the profile does not contain it
	SkipReason string // why the node is not changed; empty if the node is changed
	Err        error  // why the node cannot be rolled back, or nil
}

// PlanRollback decides the target of each node. It returns an error if the target is invalid for the whole
// rollback; an error of one node is in the node's step.
//
// The last run is the latest run that changed one of these nodes. A node that the last run did not change is
// not rolled back, because that would undo an earlier run.
func PlanRollback(inspected []fleet.Outcome[activate.Node], recorded map[string]state.Node, to RollbackTo) ([]Step, error) {
	var last *state.Deployment
	for _, o := range inspected {
		if b := recorded[o.Node.Name].Before; b != nil && (last == nil || b.Time.After(last.Time)) {
			last = b
		}
	}
	steps := make([]Step, len(inspected))
	var lost []string
	for i, o := range inspected {
		s := Step{Node: o.Node, From: o.Value, Err: o.Err}
		switch b := recorded[o.Node.Name].Before; {
		case to.Generation != 0:
			s.setGenerationTarget(to.Generation)
		case to.Run != nil:
			s.setRunTarget(to.Run)
		case last == nil || b != nil && b.Run == last.Run && b.Path == "":
			lost = append(lost, o.Node.Name)
		case b == nil || b.Run != last.Run:
			s.SkipReason = "not changed by run " + last.Run
		default:
			s.Path, s.Generation = b.Path, findGeneration(o.Value, b.Path, b.Generation)
		}
		if s.Path != "" && s.Err == nil && o.Value.Current == s.Path && o.Value.Profile == s.Path {
			s.SkipReason = "runs it already"
		}
		steps[i] = s
	}
	if len(lost) > 0 {
		return nil, &NoPredecessorError{Nodes: lost}
	}
	return steps, nil
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
	if s.Err == nil {
		s.Err = &node.GoneError{Node: s.Node.Name, What: fmt.Sprintf("generation %d", number)}
	}
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
		s.Generation = findGeneration(s.From, s.Path, r.Nodes[i].After)
	}
}

// findGeneration returns the number of the generation with a system in the node's profile, or 0. had is the recorded number:
// findGeneration returns had if this generation still contains the system.
func findGeneration(n activate.Node, path string, had int) int {
	for _, g := range n.Generations {
		if g.Number == had && g.Path == path {
			return had
		}
	}
	return node.GenerationOf(n, path)
}

// ChangesNode reports whether the step changes its node.
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

// formatGeneration formats the generation that a node runs.
func formatGeneration(n activate.Node) string {
	if g := node.GenerationOf(n, n.Current); g != 0 {
		return fmt.Sprintf("generation %d", g)
	}
	return "what runs now"
}

// RollbackOptions are the options of Rollback.
type RollbackOptions struct {
	RollingOptions
	Confirm    time.Duration // time to confirm before the node restores its previous system; 0: the restore is not armed
	SettleTime time.Duration // see activate.Request
	NoReboot   bool          // see activate.Request
}

// Rollback carries out the steps. The record of the run contains the result of each node.
func (d *Deployer) Rollback(ctx context.Context, steps []Step, o RollbackOptions) ([]state.NodeResult, error) {
	d.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Deploy, Total: len(steps)})
	byName, observed := map[string]Step{}, map[string]activate.Node{}
	var changing []nixeval.Node
	var results []rollout.Result
	var errs []error
	for _, s := range steps {
		byName[s.Node.Name], observed[s.Node.Name] = s, s.From
		if s.ChangesNode() {
			changing = append(changing, s.Node)
			continue
		}
		r := s.newResult()
		if s.Err != nil {
			r.Outcome = state.Failed
		}
		d.report(r)
		results, errs = append(results, r), append(errs, s.Err)
	}
	done, err := d.update(ctx, changing, observed, o.RollingOptions, func(ctx context.Context, n nixeval.Node) rollout.Result {
		return d.rollBackNode(ctx, byName[n.Name], o)
	})
	results, err = append(results, done...), errors.Join(append(errs, err)...)
	d.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Deploy, Total: len(steps), Failed: err != nil, Text: formatCounts(results, node.Switch)})
	return toNodeResults(results), err
}

func (s Step) newResult() rollout.Result {
	r := rollout.NewResult(s.Node, s.Path, state.Unchanged, s.String(), s.Err)
	r.Before = node.GenerationOf(s.From, s.From.Current)
	return r
}

// rollBackNode carries out one step of a rollback: it rolls back one node.
func (d *Deployer) rollBackNode(ctx context.Context, s Step, o RollbackOptions) rollout.Result {
	done, err := d.nodeChanger().RollBack(ctx, s.Node, s.From, s.Path, s.Generation, node.Options{Confirm: o.Confirm, SettleTime: o.SettleTime, NoReboot: o.NoReboot})
	r := s.newResult()
	r.Outcome, r.After, r.Text, r.Err = done.Outcome, done.After(), done.Text, err
	return r
}

// NoPredecessorError is returned if the previous systems of nodes are not recorded.
type NoPredecessorError struct{ Nodes []string }

func (e *NoPredecessorError) Error() string {
	return fmt.Sprintf("roll back: there is no record of an earlier system of %s: no run from this state folder has changed it", strings.Join(e.Nodes, ", "))
}

// Kind implements [failure.Classified].
func (e *NoPredecessorError) Kind() failure.Kind { return failure.Usage }

// Hint returns what to do about the error.
func (e *NoPredecessorError) Hint() string {
	return "--to N selects a generation: nixbench generations lists them"
}
