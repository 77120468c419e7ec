package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// finishPreviousActivation finishes or undoes an unfinished activation of a killed run on the node. It reports whether there was
// such an activation. It is called before keys are uploaded: if the node rolls back that activation, the node also restores its
// previous keys, which would replace newly uploaded keys.
func (c *Changer) finishPreviousActivation(ctx context.Context, h activate.Host, t Task, o Options) (bool, error) {
	if !t.Observed.HasUnfinishedRun() {
		return false, nil
	}
	checks, err := c.healthChecks(ctx, t.Node, o)
	if err != nil {
		return false, err
	}
	finished, err := c.Activator.FinishPrevious(ctx, t.Node.Name, h, t.Closure.Out, func(ctx context.Context) error { return checks.Await(ctx, event.Confirm, c.Send) })
	return finished != nil, fleet.NewNodeError(t.Node.Name, event.Activate, err)
}

// keyBackupMode returns how long the node keeps a backup of the keys that an upload replaces. when says which keys are uploaded:
// before or after the activation.
func (o Options) keyBackupMode(when secrets.When) secrets.Aside {
	switch {
	case when == secrets.Pre && o.RollbackAll:
		return secrets.Hold
	case when == secrets.Pre:
		return secrets.Keep
	case when == secrets.Post && o.RollbackAll:
		return secrets.Add
	}
	return secrets.Drop
}

// restoreKeys restores the keys of which the node has kept a backup, after an activation has failed with the error why. It does nothing
// if the activation may still run on the node.
func (c *Changer) restoreKeys(ctx context.Context, h activate.Host, t Task, why error) error {
	var lost *activate.LostSightError
	var busy *activate.BusyError
	if t.KeySet == nil || len(t.KeySet.Keys) == 0 || errors.As(why, &lost) || errors.As(why, &busy) {
		return nil
	}
	// Restore the keys also after Ctrl-C. The user then waits for nixbench to end, so undoTimeout limits the time of the
	// restoration.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), undoTimeout, fmt.Errorf("no answer within %v", undoTimeout))
	defer cancel()
	if err := c.Uploader.EndBackup(ctx, t.Node.Name, h, secrets.Undo); err != nil { // a node that has rolled back by itself has usually restored them, too
		return fmt.Errorf("its keys may be those of the new system; nixbench apply compares them with the hive: %w", err)
	}
	return nil
}

// undoTimeout is the maximum time to restore keys after a failure.
const undoTimeout = 5 * time.Second

// DropKeyBackup deletes the backup of keys that a node has kept for a rollback of the whole run.
func (c *Changer) DropKeyBackup(ctx context.Context, n nixeval.Node) error {
	h, err := c.Fleet.Host(ctx, n)
	if err == nil {
		err = c.Uploader.EndBackup(ctx, n.Name, h, secrets.Forget)
	}
	return fleet.NewNodeError(n.Name, event.Keys, err)
}

// updateKeys uploads the keys of a node whose system does not change, because the node already runs the desired system or the goal
// is UploadKeys.
func (c *Changer) updateKeys(ctx context.Context, h activate.Host, t Task, o Options) (Result, error) {
	if t.Unchanged {
		if err := c.confirmUnchanged(t, o); err != nil {
			return Result{Outcome: state.Failed}, err
		}
	}
	keys, err := c.uploadKeys(ctx, h, t, o, secrets.All)
	switch {
	case err != nil:
		return Result{Outcome: state.Failed}, err
	case keys.Changes():
		return Result{Outcome: state.Switched, Text: "keys: " + keys.Summary()}, nil
	case o.Goal == UploadKeys:
		return Result{Outcome: state.Unchanged, Text: "keys are unchanged"}, nil
	}
	return Result{Outcome: state.Unchanged, Text: "unchanged"}, nil
}

// uploadKeys uploads the keys that are due at this moment of a deployment (when). If the hive has no keys for the node, uploadKeys
// removes the keys of the old system after the switch, and does nothing if the node's system does not change.
func (c *Changer) uploadKeys(ctx context.Context, h activate.Host, t Task, o Options, when secrets.When) (secrets.Result, error) {
	if t.KeySet == nil {
		return secrets.Result{}, nil
	}
	if len(t.KeySet.Keys) == 0 && (when == secrets.Pre || o.Goal == Boot || o.Goal == Test || when == secrets.All && o.Goal != UploadKeys) {
		return secrets.Result{}, nil
	}
	set := t.KeySet.At(when)
	set.Aside = o.keyBackupMode(when)
	set.KeepOld = o.Goal == Boot || o.Goal == Test // after boot and test, the node runs one system and boots another, and the other system needs the old keys
	set.Restart = when != secrets.Pre && o.Goal != Boot
	result, err := c.Uploader.Upload(ctx, h, set)
	return result, fleet.NewNodeError(t.Node.Name, event.Keys, err)
}

// uploadLateKeys uploads the keys that are due after a switch, while the node still waits for its first confirmation. So the node
// watches the services that wait for these keys, and a rollback restores the keys. It reports whether keys may have changed, and
// ignores errors, because the upload after the confirmation reports them. It opens a new connection, since the switch may have cut
// the old one: keys sent over the old connection could arrive after the rollback.
func (c *Changer) uploadLateKeys(ctx context.Context, h activate.Host, set secrets.Set, o Options) bool {
	ctx, cancel := context.WithTimeout(ctx, o.Confirm/2)
	defer cancel()
	set.KeepOld, set.Aside = true, secrets.Late
	if o.RollbackAll {
		set.Aside = secrets.Hold
	}
	conn, err := h.Fresh(ctx)
	if err != nil {
		return false
	}
	defer conn.Close()
	result, err := c.Uploader.Upload(ctx, connection{conn}, set)
	return err != nil || result.Changes()
}

// connection is a Host that always returns the same connection.
type connection struct{ conn *remote.Conn }

func (c connection) Conn(context.Context) (*remote.Conn, error) { return c.conn, nil }

// hasKeysAfterSwitch reports whether keys must be uploaded or removed after a switch. before is the result of the upload before
// the switch, which lists the keys to remove. If there was no such upload, it returns false only if the hive has no keys for the
// node, and the node has reported that it has no keys.
func hasKeysAfterSwitch(t Task, o Options, before secrets.Result, after activate.Node) bool {
	if t.KeySet == nil || len(t.KeySet.Keys) == 0 && after.NoKeys {
		return false
	}
	early := len(t.KeySet.At(secrets.Pre).Keys)
	return o.Goal != Switch || early == 0 || early < len(t.KeySet.Keys) || len(before.Stale) > 0
}
