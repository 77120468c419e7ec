package node

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/state"
)

// Target is a system that a node should run or boot, with the request that activates the system.
type Target struct {
	Before  activate.Node    // state of the node when it was inspected
	Request activate.Request // the request to activate the system

	// Restores means that the node had the system before, as for a rollback. If the node no longer has the system, the error is
	// then that of [NewGoneError].
	Restores bool
	// Kind is the kind of the system's engine, and Membership is the membership of the node in this engine. It is nil for a system
	// without an engine, and for an earlier system, because only the node itself can report the engine of that system.
	Kind       string
	Membership *state.Membership
	// Recovered means that unfinished activations, which killed runs had started on the node, were finished or undone before.
	Recovered bool
}

// ApplySystem activates a system on a node, and records this in the state: an intent and the system that the node ran before this
// run, and then, in place of the intent, the last confirmed system. If the outcome is unknown because the connection was lost or the
// run was cancelled, the intent stays, and the next run finishes or undoes the activation.
func (c *Changer) ApplySystem(ctx context.Context, node string, h activate.Host, t Target) (activate.Result, state.Outcome, error) {
	run := c.RunID
	intent := state.Intent{Run: run, Node: node, Step: string(event.Activate), Path: t.Request.Path, Since: time.Now()}
	if err := c.Store.Update(func(s *state.State) error {
		s.RecordBefore(run, node, newDeployment(t.Before, t.Before.Current, run))
		s.Begin(intent)
		return nil
	}); err != nil {
		return activate.Result{}, state.Failed, err
	}
	result, err := c.Activator.Activate(ctx, node, h, t.Request)
	var missing *activate.NotSystemError
	if t.Restores && errors.As(err, &missing) {
		err = NewGoneError(node, t.Request.Path)
	}
	var lost *activate.LostSightError
	if err != nil && (errors.As(err, &lost) || ctx.Err() != nil) {
		result.After = activate.Node{} // unknown
		return result, state.Failed, err
	}
	if stateErr := c.Store.Update(func(s *state.State) error {
		s.Finish(run, node, intent.Step)
		// When the result of this activation is known, the node has also finished or undone the activations of earlier, killed
		// runs. Otherwise another run may be switching the node, so their intents stay.
		if err == nil || t.Recovered || result.PreviousRun != nil || result.Outcome != "" {
			s.DropOpenIntents(run, node)
		}
		if err == nil && t.Request.Goal != activate.Boot {
			s.Confirm(node, newDeployment(result.After, t.Request.Path, run))
			s.RecordEngine(node, cmp.Or(result.After.Engine, t.Kind))
		}
		if err == nil && t.Membership != nil {
			s.RecordMembership(node, t.Kind, *t.Membership)
		}
		return nil
	}); stateErr != nil {
		err = errors.Join(err, stateErr)
	}
	switch {
	case err != nil && result.RolledBack():
		return result, state.RolledBack, err
	case err != nil:
		return result, state.Failed, err
	case !result.Changed:
		return result, state.Unchanged, nil
	}
	return result, state.Switched, nil
}

// newDeployment returns the record of a node's system for the state. It contains the number of the system's generation on the node.
func newDeployment(n activate.Node, path, run string) state.Deployment {
	return state.Deployment{Path: path, Generation: n.GenerationOf(path), Run: run, Time: time.Now()}
}
