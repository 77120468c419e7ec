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
	node    nixeval.Node
	closure nixeval.Closure
	same    bool // runs the wanted system already; only keys may have changed
	// recovered: what a killed run had left unfinished on the node is finished.
	recovered bool
	keys      secrets.Set
	machine   *booting // what is to be done with its machine first, or nil
}

// calm tells whether nothing stops on the node.
func (t task) calm() bool { return t.same && t.machine == nil }

// task is what there is to do for one node, once it has been looked at; or nil.
func (r *run) task(ctx context.Context, n nixeval.Node, closures map[string]nixeval.Closure, looked *look) (*task, error) {
	<-looked.over
	c, have := closures[n.Unit]
	switch {
	case !have && r.Goal != UploadKeys:
		r.done(n, c, state.Skipped, "skipped: it was not built", nil)
		return nil, nil
	case looked.err != nil && r.machines.later(n.Name) == nil: // a machine that is made anew may be what mends it
		r.done(n, c, state.Failed, "", looked.err)
		return nil, looked.err
	}
	r.mu.Lock()
	r.found[n.Name] = looked.found
	r.mu.Unlock()
	t := &task{node: n, closure: c, same: r.same(looked.found, c), machine: r.machines.later(n.Name)}
	// Before anything is copied there.
	if err := r.refuses(t, looked.found); err != nil && looked.err == nil {
		err = &NodeError{Node: n.Name, Step: event.Activate, Err: err}
		r.done(n, c, state.Failed, "", err)
		return nil, err
	}
	if !r.UsesKeys() {
		return t, nil
	}
	// All keys, so that a mistake here is found before anything is changed there.
	d, err := r.deploymentOf(n)
	if err == nil {
		t.keys, err = r.Uploader.Load(ctx, n.Name, d, secrets.All)
	}
	if err != nil {
		err = &NodeError{Node: n.Name, Step: event.Keys, Err: err}
		r.done(n, c, state.Failed, "", err)
		return nil, err
	}
	return t, nil
}

// foundOn is what was found on a node before anything was done there.
func (r *run) foundOn(n nixeval.Node) activate.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.found[n.Name]
}

// same tells whether the node is already where the goal would bring it.
func (r *run) same(found activate.Node, c nixeval.Closure) bool {
	runs := r.runs(c)
	return runs != "" && r.Goal.activates() && found.At(activate.Goal(r.Goal), c.Out, runs)
}

// refuses tells whether what the node has may not be replaced.
func (r *run) refuses(t *task, found activate.Node) error {
	runs := r.runs(t.closure)
	if !r.Goal.activates() || t.same || runs == "" {
		return nil
	}
	return r.request(*t).Refuses(t.node.Name, found.Wanting(runs))
}

// runs is the system that the node would run, as it calls it itself; empty if only the
// node has what would tell.
func (r *run) runs(c nixeval.Closure) string {
	if r.Specialisation == "" {
		return c.Out
	}
	system, _ := filepath.EvalSymlinks(filepath.Join(c.Out, "specialisation", r.Specialisation))
	return system
}
