package deploy

import (
	"context"
	"path/filepath"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// task is what there is to do for one node.
type task struct {
	node      nixeval.Node
	closure   nixeval.Closure
	unchanged bool // runs the wanted system already; only keys may have changed
	// recovered: what a killed run had left unfinished on the node is finished.
	recovered bool
	keys      secrets.Set
	machine   *machineTask // what is to be done with its machine first, or nil
}

// noop tells whether nothing stops on the node.
func (t task) noop() bool { return t.unchanged && t.machine == nil }

// newTask is what there is to do for one node, once it has been looked at; or nil.
func (r *run) newTask(ctx context.Context, n nixeval.Node, closures map[string]nixeval.Closure, inspected *inspection) (*task, error) {
	<-inspected.done
	c, have := closures[n.Unit]
	switch {
	case !have && r.Goal != UploadKeys:
		r.recordOutcome(n, c, state.Skipped, "skipped: it was not built", nil)
		return nil, nil
	case inspected.err != nil && r.machines.deferredTask(n.Name) == nil: // a machine that is made anew may be what mends it
		r.recordOutcome(n, c, state.Failed, "", inspected.err)
		return nil, inspected.err
	}
	r.mu.Lock()
	r.observed[n.Name] = inspected.observed
	r.mu.Unlock()
	t := &task{node: n, closure: c, unchanged: r.isUnchanged(inspected.observed, c), machine: r.machines.deferredTask(n.Name)}
	// Before anything is copied there.
	if err := r.checkReplaceable(t, inspected.observed); err != nil && inspected.err == nil {
		err = &NodeError{Node: n.Name, Step: event.Activate, Err: err}
		r.recordOutcome(n, c, state.Failed, "", err)
		return nil, err
	}
	if r.WithoutKeys || r.Goal == Push || r.Goal == DryActivate {
		return t, nil
	}
	// All keys, so that a mistake here is found before anything is changed there.
	d, err := r.nodeDeployment(n)
	if err == nil {
		t.keys, err = r.Uploader.Load(ctx, n.Name, d, secrets.All)
	}
	if err != nil {
		err = &NodeError{Node: n.Name, Step: event.Keys, Err: err}
		r.recordOutcome(n, c, state.Failed, "", err)
		return nil, err
	}
	return t, nil
}

// observedOn is what was found on a node before anything was done there.
func (r *run) observedOn(n nixeval.Node) activate.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.observed[n.Name]
}

// isUnchanged tells whether the node is already where the goal would bring it.
func (r *run) isUnchanged(observed activate.Node, c nixeval.Closure) bool {
	runs := r.targetSystem(c)
	return runs != "" && r.Goal.activates() && observed.At(activate.Goal(r.Goal), c.Out, runs)
}

// checkReplaceable tells whether what the node has may not be replaced.
func (r *run) checkReplaceable(t *task, observed activate.Node) error {
	runs := r.targetSystem(t.closure)
	if !r.Goal.activates() || t.unchanged || runs == "" {
		return nil
	}
	return r.activationRequest(*t).Refuses(t.node.Name, observed.Wanting(runs))
}

// targetSystem is the system that the node would run, as it calls it itself; empty if only the
// node has what would tell.
func (r *run) targetSystem(c nixeval.Closure) string {
	if r.Specialisation == "" {
		return c.Out
	}
	system, _ := filepath.EvalSymlinks(filepath.Join(c.Out, "specialisation", r.Specialisation))
	return system
}
