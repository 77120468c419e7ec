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

// deployNode deploys one node: it copies the closure, uploads keys, activates the system and
// uploads the remaining keys. It records the node's result, and returns the error for the run.
func (r *run) deployNode(ctx context.Context, t task) error {
	outcome, text, err := r.runDeploySteps(ctx, t)
	var lost *activate.LostSightError
	if err != nil && ctx.Err() != nil && !errors.As(err, &lost) {
		// The cause of the cancellation explains more than the failure that followed from it.
		err = &NodeError{Node: t.node.Name, Step: event.Deploy, Err: context.Cause(ctx)}
	}
	r.recordOutcome(t.node, t.closure, outcome, text, err)
	return err
}

func (r *run) runDeploySteps(ctx context.Context, t task) (state.Outcome, string, error) {
	h, err := r.Fleet.Host(ctx, t.node)
	if err != nil {
		return state.Failed, "", err
	}
	if t.unchanged || r.Goal == UploadKeys {
		return r.updateKeys(ctx, h, t)
	}
	if err := r.transferClosure(ctx, h, t); err != nil {
		return state.Failed, "", err
	}
	switch r.Goal {
	case Push:
		return state.Switched, "copied", nil
	case DryActivate:
		return r.dryActivate(ctx, h, t)
	}
	if err := r.finishPrevious(ctx, h, &t); err != nil {
		return state.Failed, "", err
	}
	if _, err := r.uploadKeys(ctx, h, t, secrets.Pre); err != nil {
		return state.Failed, "", err // the node has restored its previous keys
	}
	outcome, text, err := r.activateNode(ctx, h, t)
	if err != nil {
		return outcome, text, errors.Join(err, r.restoreKeys(ctx, h, t, err))
	}
	if _, err := r.uploadKeys(ctx, h, t, secrets.Post); err != nil {
		return state.Failed, "", err
	}
	return outcome, text, nil
}

// updateKeys uploads the keys of a node that runs the desired system already, or whose
// system is not to be changed.
func (r *run) updateKeys(ctx context.Context, h nodeHost, t task) (state.Outcome, string, error) {
	if t.unchanged {
		if err := r.confirmUnchanged(t); err != nil {
			return state.Failed, "", err
		}
	}
	changed, err := r.uploadKeys(ctx, h, t, secrets.All)
	switch {
	case err != nil:
		return state.Failed, "", err
	case changed != "":
		return state.Switched, changed, nil
	case r.Goal == UploadKeys:
		return state.Unchanged, "keys are unchanged", nil
	}
	return state.Unchanged, "unchanged", nil
}

// confirmUnchanged removes the intents of killed runs from the state and records the system
// as confirmed: the node already runs the desired system.
func (r *run) confirmUnchanged(t task) error {
	name, id, observed := t.node.Name, r.Record.ID(), r.observedOn(t.node)
	recorded := r.Store.State()
	if len(recorded.OpenIntents(id, name)) == 0 {
		if confirmed := recorded.Nodes[name].LastConfirmed; r.Goal != Switch || confirmed != nil && confirmed.Path == t.closure.Out {
			return nil
		}
	}
	return r.Store.Update(func(s *state.State) error {
		s.DropOpenIntents(id, name)
		if r.Goal == Switch {
			s.Confirm(name, newDeployment(observed, t.closure.Out, id))
		}
		return nil
	})
}

// nodeHost is a node's connection with the methods that activate and closure need.
type nodeHost interface {
	activate.Host
	closure.Host
}

// transferClosure copies the system to the node or builds it there, and protects it from the
// node's garbage collector.
func (r *run) transferClosure(ctx context.Context, h nodeHost, t task) error {
	name := t.node.Name
	r.Send.Send(event.Event{Kind: event.NodeStart, Phase: event.Copy, Node: name})
	var text string
	var stats closure.Stats
	var err error
	if r.buildsOnTarget(t.node.Unit) {
		text, err = "built there", r.Copier.BuildOnTarget(ctx, name, h, []string{t.closure.Drv})
	} else {
		stats, err = r.Copier.Copy(ctx, name, h, []string{t.closure.Out})
		text = fmt.Sprintf("%d paths", stats.Paths)
		if err != nil {
			stats = closure.Stats{} // they count the paths to copy, not the paths that were copied
		}
	}
	if err == nil && r.Goal != DryActivate {
		// Until the profile points to the system, the node's garbage collector could delete it.
		err = r.Copier.Protect(ctx, name, h, "nixbench-wanted", t.closure.Out)
	}
	r.Send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Copy, Node: name, Text: text, Failed: err != nil,
		Done: int(stats.Bytes), Total: int(stats.Closure)})
	if err != nil {
		return &NodeError{Node: name, Step: event.Copy, Err: err}
	}
	return nil
}

// uploadKeys uploads the keys for the given moment of a deployment, and returns a text about
// what changed. If the hive has no keys for the node, the keys of the old system are removed
// after that system has stopped running. A node that has no keys according to the state is
// not contacted.
func (r *run) uploadKeys(ctx context.Context, h nodeHost, t task, when secrets.When) (string, error) {
	none := len(t.keys.Keys) == 0
	if r.WithoutKeys || none && (when == secrets.Pre || r.Goal == Boot || r.Goal == Test ||
		when == secrets.All && r.Goal != UploadKeys && r.confirmedWithoutKeys(t)) {
		return "", nil
	}
	set := t.keys.At(when)
	set.Aside = r.asideMode(when)
	set.KeepOld = r.Goal == Boot || r.Goal == Test // the node runs or boots also another system, which needs its keys
	result, err := r.Uploader.Upload(ctx, h, set)
	if err != nil {
		return "", &NodeError{Node: t.node.Name, Step: event.Keys, Err: err}
	}
	if result.Changes() {
		return result.Summary(), nil
	}
	return "", nil
}

// confirmedWithoutKeys reports whether the last confirmed system is the one that the node runs.
// The hive has no keys for the node then, so there are none of ours to remove.
func (r *run) confirmedWithoutKeys(t task) bool {
	confirmed := r.Store.Node(t.node.Name).LastConfirmed
	return confirmed != nil && (confirmed.Path == r.observedOn(t.node).Current || t.unchanged && confirmed.Path == t.closure.Out) // or a specialisation of that system
}

func (r *run) activationRequest(t task) activate.Request {
	d := r.hive.Unit(t.node.Unit).Deployment
	return activate.Request{
		Run: r.Record.ID(), Path: t.closure.Out, Goal: activate.Goal(r.Goal),
		Specialisation: r.Specialisation, Confirm: r.Confirm, SettleTime: r.SettleTime, Activator: r.ActivateWith,
		ReplaceUnknown: r.ReplaceUnknown || d.ReplaceUnknownProfiles,
		Known:          r.Store.Node(t.node.Name).Paths,
	}
}

func (r *run) dryActivate(ctx context.Context, h nodeHost, t task) (state.Outcome, string, error) {
	result, err := r.Activator.Activate(ctx, t.node.Name, h, r.activationRequest(t))
	if err != nil {
		return state.Failed, "", &NodeError{Node: t.node.Name, Step: event.Activate, Err: err}
	}
	return state.Unchanged, dryText(result), nil
}

// activateNode activates the task's system on the node.
func (r *run) activateNode(ctx context.Context, h nodeHost, t task) (state.Outcome, string, error) {
	name, before := t.node.Name, r.observedOn(t.node)
	result, outcome, err := r.applySystem(ctx, name, h, systemTarget{before: before, request: r.activationRequest(t), recovered: t.recovered})
	var busy *activate.BusyError
	if result.Changed && !errors.As(err, &busy) { // a busy node is changed by another run
		r.recordActivation(t.node, result)
	}
	if err != nil {
		return outcome, "", &NodeError{Node: name, Step: event.Activate, Err: err}
	}
	return outcome, activateText(result, before), nil
}
