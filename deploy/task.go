package deploy

import (
	"context"

	"github.com/nixbench/nixbench/deploy/machines"
	"github.com/nixbench/nixbench/deploy/node"

	"github.com/nixbench/nixbench/deploy/fleet"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// task is what a run has to do for one node.
type task struct {
	node.Task
	machine *machines.Task // what to do with its machine before the deployment, or nil
}

// isNoop reports whether the task restarts nothing on the node.
func (t task) isNoop() bool { return t.Unchanged && t.machine == nil }

// newTask waits for the node's inspection and returns its task. It returns nil if there is nothing to
// do, and records the node's outcome then.
func (r *run) newTask(ctx context.Context, n nixeval.Node, closures map[string]nixeval.Closure, inspected *inspection) (*task, error) {
	<-inspected.done
	c, have := closures[n.Unit]
	switch {
	case !have && r.Goal != node.UploadKeys:
		r.recordOutcome(n, c, state.Skipped, "skipped: it was not built", nil)
		return nil, nil
	case inspected.err != nil && r.machines.DeferredTask(n.Name) == nil: // recreating the machine may repair the node
		r.recordOutcome(n, c, state.Failed, "", inspected.err)
		return nil, inspected.err
	}
	r.mu.Lock()
	r.observed[n.Name] = inspected.observed
	r.mu.Unlock()
	d, err := r.deploymentOf(n)
	t := &task{machine: r.machines.DeferredTask(n.Name), Task: node.Task{
		Node: n, Deployment: d, Closure: c, BuildOnTarget: r.buildsOnTarget(n.Unit),
		Observed: inspected.observed, Unchanged: node.IsUnchanged(inspected.observed, c, r.nodeOptions()),
	}}
	if inspected.err == nil { // otherwise its machine is recreated
		if refusal := r.nodeChanger().CheckReplaceable(t.Task, r.nodeOptions()); refusal != nil {
			err := &fleet.NodeError{Node: n.Name, Step: event.Activate, Err: refusal}
			r.recordOutcome(n, c, state.Failed, "", err)
			return nil, err
		}
	}
	if !r.UsesKeys() {
		return t, nil
	}
	// Load all keys now, so that an error in a key is found before anything is changed on the node.
	if err == nil {
		t.Keys, err = r.Uploader.Load(ctx, n.Name, d, secrets.All)
	}
	if err != nil {
		err = &fleet.NodeError{Node: n.Name, Step: event.Keys, Err: err}
		r.recordOutcome(n, c, state.Failed, "", err)
		return nil, err
	}
	return t, nil
}

// deploymentOf returns the deployment options of a node, with the keys that nixbench adds.
func (r *run) deploymentOf(n nixeval.Node) (nixeval.Deployment, error) {
	if r.Machines == nil {
		return r.hive.Unit(n.Unit).Deployment, nil
	}
	return r.Machines.NodeDeployment(n, r.Store.State())
}
