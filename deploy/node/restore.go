package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

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
func (c *Changer) restoreSystem(ctx context.Context, t Task, h host, o Options, before activate.Node, goal activate.Goal, path string) error {
	name, generation := t.Node.Name, before.GenerationOf(path)
	if generation == 0 {
		return errors.New("it had no earlier generation")
	}
	if t.KeySet != nil { // restore the keys before the system, because the services of the earlier system start with the previous keys
		if err := c.Uploader.PutBack(ctx, name, h); err != nil {
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
