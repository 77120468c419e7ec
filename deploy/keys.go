package deploy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/nixeval"
)

// finishPrevious finishes or undoes what a killed run left on the node. This comes before keys are
// uploaded: when the node rolls back the switch of that run, it restores the keys from before it,
// and would so replace ours.
func (r *run) finishPrevious(ctx context.Context, h hostOf, t *task) error {
	if !r.foundOn(t.node).HasUnfinishedRun() {
		return nil
	}
	settled, err := r.Activator.FinishPrevious(ctx, t.node.Name, h, t.closure.Out)
	if err != nil {
		return &NodeError{Node: t.node.Name, Step: event.Activate, Err: err}
	}
	t.recovered = settled != nil
	return nil
}

// aside is for how long the node keeps what an upload replaces.
func (r *run) aside(when secrets.When) secrets.Aside {
	switch {
	case when == secrets.Pre && r.RollbackAll:
		return secrets.Hold
	case when == secrets.Pre:
		return secrets.Keep
	case when == secrets.Post && r.RollbackAll:
		return secrets.Add
	}
	return secrets.Drop
}

// keysBack puts back the keys of a node where the switch that they were for did not
// come about. Mostly the node has done that itself, or a switch failed half-way and
// was to stay: then this does nothing. A run that goes on has them in its care.
func (r *run) keysBack(ctx context.Context, h hostOf, t task, why error) error {
	var lost *activate.LostSightError
	var busy *activate.BusyError
	if r.WithoutKeys || len(t.keys.Keys) == 0 || errors.As(why, &lost) || errors.As(why, &busy) {
		return nil
	}
	// Also for somebody who has interrupted us, and is waiting.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), undoTimeout, fmt.Errorf("no answer within %v", undoTimeout))
	defer cancel()
	err := r.Uploader.Undo(ctx, t.node.Name, h)
	var failed *activate.FailedError
	switch {
	case err == nil:
		return nil
	case errors.As(why, &failed) && failed.Result.RolledBack():
		// We only wanted to see to what the node could not put back.
		return fmt.Errorf("the node has put back the keys from before together with its system, but that could not be verified: %w", err)
	}
	return fmt.Errorf("its keys may still be those of the new system; nixbench apply compares them with the hive: %w", err)
}

// undoTimeout bounds putting back keys after a failure.
const undoTimeout = 5 * time.Second

// forgetKeys removes the keys that nodes kept in case the whole run is rolled back.
func (r *run) forgetKeys(ctx context.Context) error {
	if r.WithoutKeys {
		return nil
	}
	var errs []error
	for _, o := range Each(ctx, r.switched(), r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
		h, err := r.Fleet.Host(ctx, n)
		if err == nil {
			err = r.Uploader.DropBackup(ctx, n.Name, h)
		}
		if err != nil {
			err = &NodeError{Node: n.Name, Step: event.Keys, Err: err}
		}
		return struct{}{}, err
	}) {
		errs = append(errs, o.Err)
	}
	return errors.Join(errs...)
}
