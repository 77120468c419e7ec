package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
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

// Restore undoes a deployment. It restores the keys that the deployment has replaced, and the systems that the node ran and would have
// booted before. After an earlier `apply boot` or `apply test`, these are two different systems.
func (c *Changer) Restore(ctx context.Context, t Task, before activate.Node, o Options) error {
	h, err := c.Fleet.Host(ctx, t.Node)
	if err != nil {
		return err
	}
	if o.Goal != Boot {
		goal := activate.Switch
		if o.Goal == Test {
			goal = activate.Test
		}
		if err := c.restoreSystem(ctx, t, h, o, before, goal, before.Current); err != nil {
			return err
		}
	}
	if o.Goal != Test && before.Profile != before.Current || o.Goal == Boot {
		return c.restoreSystem(ctx, t, h, o, before, activate.Boot, before.Profile)
	}
	return nil
}

// restoreSystem restores the previous keys of a node, and then activates the earlier system with the store path `path`.
func (c *Changer) restoreSystem(ctx context.Context, t Task, h activate.Host, o Options, before activate.Node, goal activate.Goal, path string) error {
	name, generation := t.Node.Name, before.GenerationOf(path)
	if generation == 0 {
		return errors.New("it had no earlier generation")
	}
	if t.KeySet != nil { // restore the keys before the system, because the services of the earlier system start with the previous keys
		if err := c.Uploader.EndBackup(ctx, name, h, secrets.Restore); err != nil {
			return err
		}
	}
	_, _, err := c.ApplySystem(ctx, name, h, newEarlierTarget(before, activate.Request{Run: c.RunID + "-back", Path: path, Generation: generation, Goal: goal}, o))
	return err
}

// newEarlierTarget returns the target for a system that the node had before.
func newEarlierTarget(before activate.Node, r activate.Request, o Options) Target {
	r.Confirm, r.SettleTime, r.ReplaceUnknown = o.Confirm, o.SettleTime, true
	return Target{Before: before, Restores: true, Request: r}
}

// RollBack activates an earlier system on a node. generation is the number of that system in the node's
// profile, or 0 if the profile does not contain the system.
func (c *Changer) RollBack(ctx context.Context, n nixeval.Node, before activate.Node, path string, generation int, o Options) (Result, error) {
	h, err := c.Fleet.Host(ctx, n)
	if err != nil {
		return Result{Outcome: state.Failed}, err
	}
	activation, outcome, err := c.ApplySystem(ctx, n.Name, h, newEarlierTarget(before, activate.Request{Run: c.RunID, Path: path, Generation: generation, Goal: activate.Switch}, o))
	result := Result{Outcome: outcome, Activation: &activation}
	if err != nil {
		return result, fleet.NewNodeError(n.Name, event.Activate, err)
	}
	result.Text = formatActivation(activation, before)
	return result, nil
}

// NewGoneError returns the error of a rollback to a system that the node no longer has. system is its path, or text such as `generation 3`.
func NewGoneError(node, system string) error {
	err := fmt.Errorf("roll back: the node no longer has %s: it was removed, and perhaps garbage-collected", system)
	return failure.WithHint(failure.WithKind(failure.Activation, failure.On(node, err)),
		"nixbench generations lists the available generations; nixbench apply with an older hive deploys other systems again")
}
