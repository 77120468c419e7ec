package deploy

import (
	"context"
	"errors"
	"fmt"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/closure"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/deploy/state"
)

// deploy brings one node where the goal says: closure, keys, activation, keys. It
// reports the node's result itself; the error is for the run.
func (r *run) deploy(ctx context.Context, t task) error {
	outcome, text, err := r.steps(ctx, t)
	var lost *activate.LostSightError
	if err != nil && ctx.Err() != nil && !errors.As(err, &lost) {
		// What broke when we stopped says less than that we stopped.
		err = &NodeError{Node: t.node.Name, Step: event.Deploy, Err: context.Cause(ctx)}
	}
	r.done(t.node, t.closure, outcome, text, err)
	return err
}

func (r *run) steps(ctx context.Context, t task) (state.Outcome, string, error) {
	h, err := r.Fleet.Host(ctx, t.node)
	if err != nil {
		return state.Failed, "", err
	}
	if t.same || r.Goal == UploadKeys {
		return r.onlyKeys(ctx, h, t)
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
	if err := r.finishPrevious(ctx, h, &t); err != nil {
		return state.Failed, "", err
	}
	if _, err := r.keys(ctx, h, t, secrets.Pre); err != nil {
		return state.Failed, "", err // the node has put back those that came
	}
	outcome, text, err := r.activate(ctx, h, t)
	if err != nil {
		return outcome, text, errors.Join(err, r.keysBack(ctx, h, t, err))
	}
	if _, err := r.keys(ctx, h, t, secrets.Post); err != nil {
		return state.Failed, "", err
	}
	return outcome, text, nil
}

// onlyKeys is for a node that is where it should be, or of which only the keys count.
func (r *run) onlyKeys(ctx context.Context, h hostOf, t task) (state.Outcome, string, error) {
	if t.same {
		if err := r.confirmSame(t); err != nil {
			return state.Failed, "", err
		}
	}
	changed, err := r.keys(ctx, h, t, secrets.All)
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

// confirmSame clears what a killed run left in the state: the node has finished it.
func (r *run) confirmSame(t task) error {
	name, id, found := t.node.Name, r.Record.ID(), r.foundOn(t.node)
	known := r.Store.State()
	if len(known.OpenIntents(id, name)) == 0 {
		if good := known.Nodes[name].LastConfirmed; r.Goal != Switch || good != nil && good.Path == t.closure.Out {
			return nil
		}
	}
	return r.Store.Update(func(s *state.State) error {
		s.DropOpenIntents(id, name)
		if r.Goal == Switch {
			s.Confirm(name, deployment(found, t.closure.Out, id))
		}
		return nil
	})
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
	var stats closure.Stats
	var err error
	if r.onTarget(t.node.Unit) {
		text, err = "built there", r.Copier.BuildOnTarget(ctx, name, h, []string{t.closure.Drv})
	} else {
		stats, err = r.Copier.Copy(ctx, name, h, []string{t.closure.Out})
		text = fmt.Sprintf("%d paths", stats.Paths)
		if err != nil {
			stats = closure.Stats{} // what was missing, not what came
		}
	}
	if err == nil && r.Goal != DryActivate {
		// Until the profile points to it, a collection on the node could take it.
		err = r.Copier.Protect(ctx, name, h, "nixbench-wanted", t.closure.Out)
	}
	r.Send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Copy, Node: name, Text: text, Failed: err != nil,
		Done: int(stats.Bytes), Total: int(stats.Closure)})
	if err != nil {
		return &NodeError{Node: name, Step: event.Copy, Err: err}
	}
	return nil
}

// keys uploads what belongs there at that moment; the text says what changed. Where
// the hive has no keys, those of the old system go when it runs no more, and a node
// that is known to have none is not asked.
func (r *run) keys(ctx context.Context, h hostOf, t task, when secrets.When) (string, error) {
	none := len(t.keys.Keys) == 0
	if r.WithoutKeys || none && (when == secrets.Pre || r.Goal == Boot || r.Goal == Test ||
		when == secrets.All && r.Goal != UploadKeys && r.knownWithoutKeys(t)) {
		return "", nil
	}
	set := t.keys.At(when)
	set.Aside = r.aside(when)
	set.KeepOld = r.Goal == Boot || r.Goal == Test // another system runs, or boots, than this one
	result, err := r.Uploader.Upload(ctx, h, set)
	if err != nil {
		return "", &NodeError{Node: t.node.Name, Step: event.Keys, Err: err}
	}
	if result.Changes() {
		return result.Summary(), nil
	}
	return "", nil
}

// knownWithoutKeys tells that what the node runs, and the hive has no keys for, was
// confirmed by us, so that none of ours were left to take away.
func (r *run) knownWithoutKeys(t task) bool {
	good := r.Store.Node(t.node.Name).LastConfirmed
	return good != nil && (good.Path == r.foundOn(t.node).Current || t.same && good.Path == t.closure.Out) // or its specialisation
}

func (r *run) request(t task) activate.Request {
	d := r.hive.Unit(t.node.Unit).Deployment
	return activate.Request{
		Run: r.Record.ID(), Path: t.closure.Out, Goal: activate.Goal(r.Goal),
		Specialisation: r.Specialisation, Confirm: r.Confirm, SettleTime: r.Settle, Activator: r.ActivateWith,
		ReplaceUnknown: r.ReplaceUnknown || d.ReplaceUnknownProfiles,
		Known:          r.Store.Node(t.node.Name).Paths,
	}
}

func (r *run) dry(ctx context.Context, h hostOf, t task) (state.Outcome, string, error) {
	result, err := r.Activator.Activate(ctx, t.node.Name, h, r.request(t))
	if err != nil {
		return state.Failed, "", &NodeError{Node: t.node.Name, Step: event.Activate, Err: err}
	}
	return state.Unchanged, dryText(result), nil
}

// activate switches the node.
func (r *run) activate(ctx context.Context, h hostOf, t task) (state.Outcome, string, error) {
	name, before := t.node.Name, r.foundOn(t.node)
	result, outcome, err := r.applySystem(ctx, name, h, systemTarget{before: before, request: r.request(t), recovered: t.recovered})
	var busy *activate.BusyError
	if result.Changed && !errors.As(err, &busy) { // a busy node is changed by the other run
		r.changed(t.node, result)
	}
	if err != nil {
		return outcome, "", &NodeError{Node: name, Step: event.Activate, Err: err}
	}
	return outcome, activateText(result, before), nil
}
