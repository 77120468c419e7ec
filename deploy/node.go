package deploy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/closure"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// deploy brings one node where the goal says: closure, keys, activation, keys. It
// reports the node's result itself; the error is for the run.
func (r *run) deploy(ctx context.Context, t task) error {
	outcome, text, err := r.steps(ctx, t)
	r.done(t.node, t.closure, outcome, text, err)
	return err
}

func (r *run) steps(ctx context.Context, t task) (state.Outcome, string, error) {
	h, err := r.Fleet.Host(ctx, t.node)
	if err != nil {
		return state.Failed, "", err
	}
	d := r.hive.Unit(t.node.Unit).Deployment
	if t.same || r.Goal == UploadKeys {
		changed, err := r.keys(ctx, h, t.node, d, secrets.All)
		switch {
		case err != nil:
			return state.Failed, "", err
		case changed != "":
			return state.Switched, changed, nil
		case r.Goal == UploadKeys:
			return state.Unchanged, "keys are as they were", nil
		}
		return state.Unchanged, "unchanged", nil
	}
	if err := r.closure(ctx, h, t); err != nil {
		return state.Failed, "", err
	}
	switch r.Goal {
	case Push:
		return state.Switched, "copied", nil
	case DryActivate:
		return r.dry(ctx, h, t)
	}
	if _, err := r.keys(ctx, h, t.node, d, secrets.Pre); err != nil {
		return state.Failed, "", err
	}
	outcome, text, err := r.activate(ctx, h, t, d)
	if err != nil {
		return outcome, text, err
	}
	if _, err := r.keys(ctx, h, t.node, d, secrets.Post); err != nil {
		return state.Failed, "", err
	}
	return outcome, text, nil
}

// hostOf is a node's connection, as all packages together need it.
type hostOf interface {
	activate.Host
	closure.Host
}

// closure copies the system, or builds it on the node.
func (r *run) closure(ctx context.Context, h hostOf, t task) error {
	name := t.node.Name
	r.Send.Send(event.Event{Kind: event.NodeStart, Phase: event.Copy, Node: name})
	var text string
	var err error
	if r.onTarget(t.node.Unit) {
		text, err = "built there", r.Copier.BuildOnTarget(ctx, name, h, []string{t.closure.Drv})
	} else {
		stats, copyErr := r.Copier.Copy(ctx, name, h, []string{t.closure.Out})
		text, err = fmt.Sprintf("%d paths", stats.Paths), copyErr
	}
	if err == nil && r.Goal != DryActivate {
		// Until the profile points to it, a collection on the node could take it.
		err = r.Copier.Protect(ctx, name, h, "nixbench-wanted", t.closure.Out)
	}
	r.Send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Copy, Node: name, Text: text, Failed: err != nil})
	if err != nil {
		return &NodeError{Node: name, Step: event.Copy, Err: err}
	}
	return nil
}

// keys uploads what belongs there at that moment; the text says what changed. A node
// that never had keys is not asked.
func (r *run) keys(ctx context.Context, h hostOf, n nixeval.Node, d nixeval.Deployment, when secrets.When) (string, error) {
	// Without keys in the hive there may still be old ones to remove, but not before
	// the system that used them is gone.
	if r.WithoutKeys || len(d.Keys) == 0 && (when == secrets.Pre || r.Goal != UploadKeys && r.knownWithoutKeys(n)) {
		return "", nil
	}
	set, err := r.Uploader.Load(ctx, n.Name, d, when)
	if err != nil {
		return "", &NodeError{Node: n.Name, Step: event.Keys, Err: err}
	}
	result, err := r.Uploader.Upload(ctx, h, set)
	if err != nil {
		return "", &NodeError{Node: n.Name, Step: event.Keys, Err: err}
	}
	if result.Changes() {
		return result.Summary(), nil
	}
	return "", nil
}

// knownWithoutKeys tells that the node runs what the hive says, and that has no keys,
// so that there are none of ours to take away either.
func (r *run) knownWithoutKeys(n nixeval.Node) bool {
	good := r.Store.State().Nodes[n.Name].Good
	return good != nil && good.Path == r.before(n.Name).Current
}

func (r *run) request(t task, d nixeval.Deployment) activate.Request {
	return activate.Request{
		Run: r.Record.ID(), Path: t.closure.Out, Goal: activate.Goal(r.Goal),
		Specialisation: r.Specialisation, Confirm: r.Confirm, Activator: r.ActivateWith,
		ReplaceUnknown: r.ReplaceUnknown || d.ReplaceUnknownProfiles,
		Known:          r.Store.State().Nodes[t.node.Name].Paths,
	}
}

func (r *run) dry(ctx context.Context, h hostOf, t task) (state.Outcome, string, error) {
	d := r.hive.Unit(t.node.Unit).Deployment
	result, err := r.Activator.Activate(ctx, t.node.Name, h, r.request(t, d))
	if err != nil {
		return state.Failed, "", &NodeError{Node: t.node.Name, Step: event.Activate, Err: err}
	}
	return state.Unchanged, dryText(result.Dry), nil
}

// activate switches the node, with the intent written down before and the result after.
func (r *run) activate(ctx context.Context, h hostOf, t task, d nixeval.Deployment) (state.Outcome, string, error) {
	name, before := t.node.Name, r.before(t.node.Name)
	id := r.Record.ID()
	intent := state.Intent{Run: id, Node: name, Step: string(event.Activate), Path: t.closure.Out, Since: time.Now()}
	was := state.Deployment{Path: before.Current, Generation: before.Generation, Run: id, Time: time.Now()}
	if err := r.Store.Update(func(s *state.State) error {
		s.Replace(id, name, was)
		s.Begin(intent)
		return nil
	}); err != nil {
		return state.Failed, "", &NodeError{Node: name, Step: event.Activate, Err: err}
	}
	result, err := r.Activator.Activate(ctx, name, h, r.request(t, d))
	var lost *activate.LostSightError
	if errors.As(err, &lost) || ctx.Err() != nil {
		// Nobody knows how it ends, so the intent stays for the next run.
		return state.Failed, "", &NodeError{Node: name, Step: event.Activate, Err: err}
	}
	if stateErr := r.Store.Update(func(s *state.State) error {
		s.Finish(id, name, intent.Step)
		s.Settle(id, name)
		if err == nil && r.Goal != Boot {
			s.Confirm(name, state.Deployment{Path: t.closure.Out, Generation: result.After.Generation, Run: id, Time: time.Now()})
		}
		return nil
	}); stateErr != nil {
		err = errors.Join(err, stateErr)
	}
	if err != nil {
		outcome := state.Failed
		if result.RolledBack() {
			outcome = state.RolledBack
		}
		return outcome, "", &NodeError{Node: name, Step: event.Activate, Err: err}
	}
	return state.Switched, activateText(result, before), nil
}

func (r *run) rollBack(ctx context.Context, n nixeval.Node) error {
	h, err := r.Fleet.Host(ctx, n)
	if err != nil {
		return err
	}
	before := r.before(n.Name)
	_, err = r.Activator.Rollback(ctx, n.Name, h, before.Generation, activate.Request{
		Run: r.Record.ID() + "-back", Goal: activate.Switch, Confirm: r.Confirm, ReplaceUnknown: true,
	})
	if err != nil {
		return &NodeError{Node: n.Name, Step: event.Activate, Err: err}
	}
	err = r.Store.Update(func(s *state.State) error {
		s.Confirm(n.Name, state.Deployment{Path: before.Current, Generation: before.Generation, Run: r.Record.ID(), Time: time.Now()})
		return nil
	})
	if err != nil {
		return &NodeError{Node: n.Name, Step: event.Activate, Err: err}
	}
	r.done(n, nixeval.Closure{Out: before.Current}, state.RolledBack, fmt.Sprintf("taken back to generation %d, since another node failed", before.Generation), nil)
	return nil
}
