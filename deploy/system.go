package deploy

import (
	"context"
	"errors"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/state"
)

// systemTarget is a system that a node is to run or to boot, and how the node gets there.
type systemTarget struct {
	before  activate.Node    // what the node was like when it was inspected
	request activate.Request // with the path of the system, even if generation is set

	// generation of the node's profile to go back to; 0: the system becomes a new generation.
	generation int
	// restores: the node had the system before. If the system is missing, it was removed.
	restores bool
	// recovered: the unfinished activations of killed runs on the node were finished or undone before.
	recovered bool
}

// applySystem activates a system on a node. apply, rollback and the restoring of nodes after a
// failed run use it, so that all of them have the same record in the state:
//
//  1. The intent is written, together with the system that the node ran before this run.
//  2. The node activates the system, and confirms it unless the rollback is not armed.
//  3. The intent is removed, and a system that was confirmed becomes the last confirmed one.
//
// If the outcome is unknown, because the connection was lost or the run was cancelled, the
// intent stays, and the next run finishes the activation or undoes it.
func (d *Deployer) applySystem(ctx context.Context, node string, h activate.Host, t systemTarget) (activate.Result, state.Outcome, error) {
	run := d.Record.ID()
	intent := state.Intent{Run: run, Node: node, Step: string(event.Activate), Path: t.request.Path, Since: time.Now()}
	if err := d.Store.Update(func(s *state.State) error {
		s.RecordBefore(run, node, newDeployment(t.before, t.before.Current, run))
		s.Begin(intent)
		return nil
	}); err != nil {
		return activate.Result{}, state.Failed, err
	}
	result, err := d.activateSystem(ctx, node, h, t)
	var lost *activate.LostSightError
	if err != nil && (errors.As(err, &lost) || ctx.Err() != nil) {
		result.After = activate.Node{} // unknown
		return result, state.Failed, err
	}
	if stateErr := d.Store.Update(func(s *state.State) error {
		s.Finish(run, node, intent.Step)
		// An activation with an outcome has finished or undone what killed runs left on the node. Without
		// an outcome, their intents stay: another run may be switching the node.
		if err == nil || t.recovered || result.PreviousRun != nil || result.Outcome != "" {
			s.DropOpenIntents(run, node)
		}
		if err == nil && t.request.Goal != activate.Boot {
			s.Confirm(node, newDeployment(result.After, t.request.Path, run))
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

func (d *Deployer) activateSystem(ctx context.Context, node string, h activate.Host, t systemTarget) (activate.Result, error) {
	if t.generation != 0 {
		return d.Activator.Rollback(ctx, node, h, t.generation, t.request)
	}
	result, err := d.Activator.Activate(ctx, node, h, t.request)
	var missing *activate.NotSystemError
	if t.restores && errors.As(err, &missing) {
		err = &GoneError{Node: node, What: t.request.Path}
	}
	return result, err
}

// newDeployment returns the record of a node's system for the state, with the generation of that system.
func newDeployment(n activate.Node, path, run string) state.Deployment {
	return state.Deployment{Path: path, Generation: generationOf(n, path), Run: run, Time: time.Now()}
}

// generationOf returns the generation of a system in the node's profile; 0 if the profile has none.
// If several generations are the same system, it prefers the one that the profile points to, then
// the newest.
func generationOf(n activate.Node, system string) int {
	if system == n.Profile && n.Generation != 0 {
		return n.Generation
	}
	return n.GenerationOf(system)
}
