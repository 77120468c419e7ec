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

// finishPrevious finishes or undoes the unfinished activation of a killed run on the node. It is called
// before keys are uploaded: if the node rolls back that activation, it also restores the keys from
// before it, which would replace newly uploaded keys.
func (r *run) finishPrevious(ctx context.Context, h nodeHost, t *task) error {
	if !r.observedOn(t.node).HasUnfinishedRun() {
		return nil
	}
	settled, err := r.Activator.FinishPrevious(ctx, t.node.Name, h, t.closure.Out)
	if err != nil {
		return &NodeError{Node: t.node.Name, Step: event.Activate, Err: err}
	}
	t.recovered = settled != nil
	return nil
}

// asideMode returns how long the node keeps a backup of the keys that an upload replaces.
func (r *run) asideMode(when secrets.When) secrets.Aside {
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

// restoreKeys restores the previous keys of a node after its activation failed. It changes
// nothing if the node has restored them itself, or if a failed switch is not rolled back. If
// an activation still runs on the node, restoreKeys leaves the keys to that activation.
func (r *run) restoreKeys(ctx context.Context, h nodeHost, t task, why error) error {
	var lost *activate.LostSightError
	var busy *activate.BusyError
	if r.WithoutKeys || len(t.keys.Keys) == 0 || errors.As(why, &lost) || errors.As(why, &busy) {
		return nil
	}
	// This runs also after Ctrl-C, while the user waits, so its time is limited.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), undoTimeout, fmt.Errorf("no answer within %v", undoTimeout))
	defer cancel()
	err := r.Uploader.Undo(ctx, t.node.Name, h)
	var failed *activate.FailedError
	switch {
	case err == nil:
		return nil
	case errors.As(why, &failed) && failed.Result.RolledBack():
		// The node has rolled back; only the keys that it could not restore are left to do.
		return fmt.Errorf("the node has restored the previous keys with its previous system, but this could not be verified: %w", err)
	}
	return fmt.Errorf("its keys may be those of the new system; nixbench apply compares them with the hive: %w", err)
}

// undoTimeout limits the time to restore keys after a failure.
const undoTimeout = 5 * time.Second

// dropKeyBackups removes the key backups that nodes kept in case the whole run is rolled back.
func (r *run) dropKeyBackups(ctx context.Context) error {
	if r.WithoutKeys {
		return nil
	}
	var errs []error
	for _, o := range Each(ctx, r.changedNodes(), r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
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
