package deploy

import (
	"context"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// task is what a run has to do for one node.
type task struct {
	node.Task
	plan    plan.Node
	machine *machine.Task // the change of the node's machine before the deployment, or nil
}

// newTask waits for the node's inspection, and returns the node's task. If the node cannot be deployed, it
// records the node's outcome and returns nil.
func (r *run) newTask(ctx context.Context, n nixeval.Node, closures map[string]nixeval.Closure, inspected *inspection) (*task, error) {
	<-inspected.done
	d, err := r.deploymentOf(n)
	if err != nil {
		err = &fleet.NodeError{Node: n.Name, Step: event.Keys, Err: err}
		r.recordOutcome(n, closures[n.Unit], state.Failed, "", err)
		return nil, err
	}
	c, built := closures[n.Unit]
	decided := r.decide(n, d, c, built, inspected)
	switch decided.Action {
	case plan.NotBuilt:
		r.recordOutcome(n, c, state.Skipped, "skipped: it was not built", nil)
		return nil, nil
	case plan.NotReachable:
		r.recordOutcome(n, c, state.Failed, "", decided.Err)
		return nil, decided.Err
	case plan.WouldRefuse:
		err := &fleet.NodeError{Node: n.Name, Step: event.Activate, Err: decided.Err}
		r.recordOutcome(n, c, state.Failed, "", err)
		return nil, err
	}
	r.recordObserved(n, inspected.observed)
	if r.Goal != node.UploadKeys {
		r.changes.add(n.Name, inspected.observed.Current, c.Out)
	}
	t := &task{plan: decided, machine: r.machines.DeferredTask(n.Name), Task: node.Task{
		Node: n, Deployment: d, Closure: c, BuildOnTarget: r.buildsOnTarget(n.Unit),
		Observed: inspected.observed, Unchanged: decided.Unchanged(),
	}}
	if decided.Keys == plan.LeaveKeys {
		return t, nil
	}
	// Load all keys now, so that an error in a key is found before anything is changed on the node.
	keys, err := r.Uploader.Load(ctx, n.Name, d, secrets.All)
	if err != nil {
		err = &fleet.NodeError{Node: n.Name, Step: event.Keys, Err: err}
		r.recordOutcome(n, c, state.Failed, "", err)
		return nil, err
	}
	t.Keys = &keys
	return t, nil
}

// decide returns what the run does to an inspected node.
func (r *run) decide(n nixeval.Node, d nixeval.Deployment, c nixeval.Closure, built bool, inspected *inspection) plan.Node {
	o := plan.Observation{Node: n, Deployment: d, Observed: inspected.observed, Err: inspected.err, Closure: c, Built: built, Recorded: r.Store.Node(n.Name)}
	if machine := r.machines.DeferredTask(n.Name); machine != nil {
		o.Machine = machine.Change.Action
	}
	return plan.Decide(o, r.Options.Options)
}

// deploymentOf returns the deployment options of a node, with the keys that nixbench adds.
func (r *run) deploymentOf(n nixeval.Node) (nixeval.Deployment, error) {
	if r.Machines == nil {
		return r.hive.Unit(n.Unit).Deployment, nil
	}
	return r.Machines.NodeDeployment(n, r.Store.State())
}
