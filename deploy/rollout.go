package deploy

import (
	"context"
	"errors"

	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// cluster is what lives, where this run may disturb it.
func (r *run) cluster(ctx context.Context, looked looks) (living, error) {
	if r.Engines == nil {
		return living{}, nil
	}
	if !r.anyDeployed(looked) || !r.Goal.runs() && !r.machines.waiting() {
		engines, err := r.Engines.Of(r.hive, r.Fleet)
		return living{engines: engines}, err
	}
	l, err := r.living(ctx, r.hive)
	for node, m := range l.members {
		m.anew = r.anew(node, looked)
		l.members[node] = m
	}
	return l, err
}

// anyDeployed tells whether a node of an engine was deployed before, and waits until such
// nodes have been looked at: a connection is there then, or is known not to come.
func (r *run) anyDeployed(looked looks) bool {
	known := r.Store.State()
	deployed := false
	for _, members := range engine.Members(r.hive) {
		for _, m := range members {
			if one := looked[m.Node]; known.Nodes[m.Node].Good != nil {
				deployed = true
				if one != nil {
					<-one.over
				}
			}
		}
	}
	return deployed
}

// runs tells whether systems are run now.
func (g Goal) runs() bool { return g == Switch || g == Test }

// waves deploys a wave after the other, and stops after one with a failure.
func (r *run) waves(ctx context.Context, l living, todo []task) error {
	byName := map[string]task{}
	var nodes []nixeval.Node
	for _, t := range todo {
		byName[t.node.Name] = t
		nodes = append(nodes, t.node)
	}
	steps := l.order(nodes, func(node string) bool {
		return byName[node].calm() || byName[node].machine == nil && !r.Goal.activates()
	}, r.MaxUnavailable)
	var guests []nixeval.Node
	var errs []error
	for _, o := range inWaves(ctx, steps, r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
		return struct{}{}, r.roll(ctx, l, byName[n.Name])
	}, func(i int) {
		if i == 0 {
			guests = steps[i]
		}
		if i+1 == len(steps) || !l.oneByOne(steps[i+1]) {
			r.welcome(ctx, l, guests)
			guests = nil
		}
	}) {
		if left(o.Err) {
			r.done(o.Node, byName[o.Node.Name].closure, state.Skipped, "skipped: a node of the wave before failed", nil)
			continue
		}
		r.notBegun(o.Node, o.Err)
		errs = append(errs, o.Err)
	}
	return errors.Join(errs...)
}

// roll deploys one node amid what lives. A node that comes in is invited, at once where
// nothing lives yet.
func (r *run) roll(ctx context.Context, l living, t task) error {
	node := t.node.Name
	m, is := l.members[node]
	if m.anew {
		if err := r.forget(ctx, m, node); err != nil {
			r.done(t.node, t.closure, state.Failed, "", err)
			return err
		}
	}
	if is && t.recreates() {
		return r.replace(ctx, l, m, t)
	}
	begun := false
	err := r.amid(ctx, l, node, r.WithoutDrain || t.machine == nil && (t.same || !r.Goal.runs()), func() error {
		begun = true
		return r.renewed(ctx, t)
	})
	if !begun {
		r.done(t.node, t.closure, state.Failed, "", err)
	}
	if err == nil && r.Goal.runs() && (len(l.members) == 0 || m.silent) {
		r.invite(ctx, l, node)
	}
	return err
}

// proven waits until what the nodes run together is as the hive has it.
func (r *run) proven(ctx context.Context, l living) error {
	if r.CheckTimeout == 0 || !r.Goal.runs() || len(l.engines) == 0 {
		return nil
	}
	var conditions []check.Condition
	for _, e := range l.engines {
		conditions = append(conditions, e.Conditions(false)...)
	}
	ctx, cancel := context.WithTimeout(ctx, r.CheckTimeout)
	defer cancel()
	_, err := check.Await(ctx, conditions, r.Send)
	return err
}
