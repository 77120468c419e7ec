package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// RollbackTo says where to go back to; its zero value means what nodes ran before the
// last run.
type RollbackTo struct {
	Generation int
	Run        *state.Run // what this run left on its nodes
}

// Step is what a rollback does to one node.
type Step struct {
	Node       nixeval.Node
	From       activate.Node
	Path       string // the system to go to
	Generation int    // its number in the node's profile; 0 if the profile has it not
	Stays      string // why nothing is done, or empty
	Err        error  // why nothing can be done, or nil
}

// PlanRollback decides where each node goes. A mistake about the whole is an error;
// what is wrong with one node is in its step.
//
// The last run is the last one that changed any of these nodes. What it left alone
// stays, else undoing a run would also undo what came before it.
func PlanRollback(looked []Outcome[activate.Node], known map[string]state.Node, to RollbackTo) ([]Step, error) {
	var last *state.Deployment
	for _, o := range looked {
		if b := known[o.Node.Name].Before; b != nil && (last == nil || b.Time.After(last.Time)) {
			last = b
		}
	}
	steps := make([]Step, len(looked))
	var lost []string
	for i, o := range looked {
		s := Step{Node: o.Node, From: o.Value, Err: o.Err}
		switch b := known[o.Node.Name].Before; {
		case to.Generation != 0:
			s.generation(to.Generation)
		case to.Run != nil:
			s.run(to.Run)
		case last == nil || b != nil && b.Run == last.Run && b.Path == "":
			lost = append(lost, o.Node.Name)
		case b == nil || b.Run != last.Run:
			s.Stays = "left alone by run " + last.Run
		default:
			s.Path, s.Generation = b.Path, generationFor(o.Value, b.Path, b.Generation)
		}
		if s.Path != "" && s.Err == nil && o.Value.Current == s.Path && o.Value.Profile == s.Path {
			s.Stays = "runs it already"
		}
		steps[i] = s
	}
	if len(lost) > 0 {
		return nil, &NoPredecessorError{Nodes: lost}
	}
	return steps, nil
}

func (s *Step) generation(number int) {
	for _, g := range s.From.Generations {
		if g.Number == number {
			s.Path, s.Generation = g.Path, number
			return
		}
	}
	if s.Err == nil {
		s.Err = &GoneError{Node: s.Node.Name, What: fmt.Sprintf("generation %d", number)}
	}
}

func (s *Step) run(r *state.Run) {
	i := slices.IndexFunc(r.Nodes, func(n state.NodeResult) bool { return n.Node == s.Node.Name })
	switch {
	case i < 0:
		s.Stays = "had no part in run " + r.ID
	case r.Nodes[i].Path == "" || r.Nodes[i].Outcome != state.Switched && r.Nodes[i].Outcome != state.Unchanged:
		s.Stays = "run " + r.ID + " left no new system there"
	default:
		s.Path = r.Nodes[i].Path
		s.Generation = generationFor(s.From, s.Path, r.Nodes[i].After)
	}
}

// generationFor prefers the number that a system had, if it still has it.
func generationFor(n activate.Node, path string, had int) int {
	for _, g := range n.Generations {
		if g.Number == had && g.Path == path {
			return had
		}
	}
	return generationOf(n, path)
}

// Does tells whether the step changes its node.
func (s Step) Does() bool { return s.Err == nil && s.Stays == "" }

func (s Step) String() string {
	switch {
	case s.Err != nil:
		return brief(s.Node.Name, s.Err)
	case s.Stays != "":
		return "stays: " + s.Stays
	case s.Generation != 0:
		return fmt.Sprintf("%s → generation %d", number(s.From), s.Generation)
	}
	return fmt.Sprintf("%s → %s", number(s.From), s.Path)
}

// number names the generation that a node runs.
func number(n activate.Node) string {
	if g := generationOf(n, n.Current); g != 0 {
		return fmt.Sprintf("generation %d", g)
	}
	return "what runs now"
}

// RollbackOptions say how to go back.
type RollbackOptions struct {
	Parallel       int
	MaxUnavailable plan.Share
	Confirm        time.Duration // 0: nothing is armed
	Settle         time.Duration // see activate.Request
	WithoutDrain   bool          // nodes of a living cluster keep their work
	Drain          engine.DrainOptions
}

// Rollback takes the steps. What became of each node is in the record of the run.
func (d *Deployer) Rollback(ctx context.Context, steps []Step, o RollbackOptions) ([]state.NodeResult, error) {
	d.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Deploy, Total: len(steps)})
	byName := map[string]Step{}
	var doing []nixeval.Node
	var results []state.NodeResult
	var errs []error
	for _, s := range steps {
		byName[s.Node.Name] = s
		if s.Does() {
			doing = append(doing, s.Node)
			continue
		}
		results = append(results, d.report(s.result(), s.String(), s.Err))
		errs = append(errs, s.Err)
	}
	done, err := d.amidAll(ctx, doing, func(node string) bool { return saysDeployed(byName[node].From) }, o.WithoutDrain, o.Drain, o.MaxUnavailable, o.Parallel, func(ctx context.Context, n nixeval.Node) (state.NodeResult, string, error) {
		return d.rollBackTo(ctx, byName[n.Name], o)
	})
	results, err = append(results, done...), errors.Join(append(errs, err)...)
	d.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Deploy, Total: len(steps), Failed: err != nil, Text: summarize(results)})
	return results, err
}

// left tells that the node's turn never came.
func left(err error) bool {
	var skipped *SkippedError
	return errors.As(err, &skipped)
}

func (s Step) result() state.NodeResult {
	r := state.NodeResult{Node: s.Node.Name, Unit: s.Node.Unit, Path: s.Path, Outcome: state.Unchanged, Before: generationOf(s.From, s.From.Current)}
	if s.Err != nil {
		r.Outcome = state.Failed
	}
	return r
}

// rollBackTo takes one step.
func (d *Deployer) rollBackTo(ctx context.Context, s Step, o RollbackOptions) (state.NodeResult, string, error) {
	name, r := s.Node.Name, s.result()
	r.Outcome = state.Failed
	h, err := d.Fleet.Host(ctx, s.Node)
	if err != nil {
		return r, "", err
	}
	result, outcome, err := d.applySystem(ctx, name, h, systemTarget{
		before: s.From, generation: s.Generation, restores: true,
		request: activate.Request{Run: d.Record.ID(), Path: s.Path, Goal: activate.Switch, Confirm: o.Confirm, SettleTime: o.Settle, ReplaceUnknown: true},
	})
	r.Outcome, r.After = outcome, generationOf(result.After, result.After.Current)
	if err != nil {
		return r, "", &NodeError{Node: name, Step: event.Activate, Err: err}
	}
	return r, activateText(result, s.From), nil
}

// NoPredecessorError says that nobody knows what nodes ran before.
type NoPredecessorError struct{ Nodes []string }

func (e *NoPredecessorError) Error() string {
	return fmt.Sprintf("roll back: nothing is on record about what %s ran before: no run from here has changed it", strings.Join(e.Nodes, ", "))
}

// Hint says what to do about it.
func (e *NoPredecessorError) Hint() string {
	return "--to N names a generation: nixbench generations lists them"
}

// GoneError says that a node no longer has what it should go back to.
type GoneError struct{ Node, What string }

func (e *GoneError) Error() string {
	return fmt.Sprintf("%s: roll back: the node has no %s (any more): it was removed, and perhaps collected as garbage", e.Node, e.What)
}

// Hint says what to do about it.
func (e *GoneError) Hint() string {
	return "nixbench generations lists what there is; nixbench apply with an older hive brings back the rest"
}
