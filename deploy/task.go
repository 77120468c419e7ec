package deploy

import (
	"context"
	"path/filepath"

	"github.com/nixbench/nixbench/deploy/machines"

	"github.com/nixbench/nixbench/deploy/fleet"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// task is what a run has to do for one node.
type task struct {
	node      nixeval.Node
	closure   nixeval.Closure
	unchanged bool // the node runs the desired system already; only keys may differ
	// recovered: the unfinished activation of a killed run was finished or undone.
	recovered bool
	keys      secrets.Set
	machine   *machines.Task // what to do with its machine before the deployment, or nil
}

// noop reports whether the task restarts nothing on the node.
func (t task) noop() bool { return t.unchanged && t.machine == nil }

// newTask waits for the node's inspection and returns its task. It returns nil if there is nothing to
// do, and records the node's outcome then.
func (r *run) newTask(ctx context.Context, n nixeval.Node, closures map[string]nixeval.Closure, inspected *inspection) (*task, error) {
	<-inspected.done
	c, have := closures[n.Unit]
	switch {
	case !have && r.Goal != UploadKeys:
		r.recordOutcome(n, c, state.Skipped, "skipped: it was not built", nil)
		return nil, nil
	case inspected.err != nil && r.machines.DeferredTask(n.Name) == nil: // recreating the machine may repair the node
		r.recordOutcome(n, c, state.Failed, "", inspected.err)
		return nil, inspected.err
	}
	r.mu.Lock()
	r.observed[n.Name] = inspected.observed
	r.mu.Unlock()
	t := &task{node: n, closure: c, unchanged: r.isUnchanged(inspected.observed, c), machine: r.machines.DeferredTask(n.Name)}
	// Check this before anything is copied to the node.
	if err := r.checkReplaceable(t, inspected.observed); err != nil && inspected.err == nil {
		err = &fleet.NodeError{Node: n.Name, Step: event.Activate, Err: err}
		r.recordOutcome(n, c, state.Failed, "", err)
		return nil, err
	}
	if !r.UsesKeys() {
		return t, nil
	}
	// Load all keys now, so that an error in a key is found before anything is changed on the node.
	d, err := r.deploymentOf(n)
	if err == nil {
		t.keys, err = r.Uploader.Load(ctx, n.Name, d, secrets.All)
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

// observedOn returns what a node ran before this run changed it.
func (r *run) observedOn(n nixeval.Node) activate.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.observed[n.Name]
}

// isUnchanged reports whether the node already runs or boots the system that the goal asks for.
func (r *run) isUnchanged(observed activate.Node, c nixeval.Closure) bool {
	runs := r.targetSystem(c)
	return runs != "" && r.Goal.activates() && observed.HasReached(activate.Goal(r.Goal), c.Out, runs)
}

// checkReplaceable returns an error if the node has a system that must not be replaced.
func (r *run) checkReplaceable(t *task, observed activate.Node) error {
	runs := r.targetSystem(t.closure)
	if !r.Goal.activates() || t.unchanged || runs == "" {
		return nil
	}
	return r.activationRequest(*t).CheckReplaceable(t.node.Name, observed.WithDesired(runs))
}

// targetSystem returns the store path that the node would report as its system; empty if that is
// known only on the node.
func (r *run) targetSystem(c nixeval.Closure) string {
	if r.Specialisation == "" {
		return c.Out
	}
	system, _ := filepath.EvalSymlinks(filepath.Join(c.Out, "specialisation", r.Specialisation))
	return system
}
