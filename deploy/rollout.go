package deploy

import (
	"context"
	"errors"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// cluster is what lives, where this run may disturb it.
func (r *run) cluster(ctx context.Context, closures map[string]nixeval.Closure, looked looks) (living, error) {
	if r.Engines == nil {
		return living{}, nil
	}
	if !r.anyDeployed(ctx, looked) || !r.Goal.runs() && !r.machines.waiting() {
		engines, err := r.Engines.Of(r.hive, r.Fleet)
		return living{engines: engines}, err
	}
	r.outlast(ctx, closures, looked)
	l, err := r.living(ctx, r.hive, looked.deployed)
	l.drain = r.Drain
	for node, m := range l.members {
		m.anew = r.anew(node, looked)
		l.members[node] = m
	}
	return l, err
}

// anyDeployed tells whether a node of an engine was deployed before, and waits until such
// nodes have been looked at: a connection is there then, or is known not to come.
func (r *run) anyDeployed(ctx context.Context, looked looks) bool {
	known := r.Store.State()
	deployed := false
	for _, members := range engine.Members(r.hive) {
		for _, m := range members {
			one, good := looked[m.Node], known.Nodes[m.Node].LastConfirmed != nil
			if one != nil && (good || r.machines.kept(m.Node)) {
				select {
				case <-one.over:
				case <-ctx.Done():
				}
			}
			deployed = deployed || good || looked.deployed(m.Node)
		}
	}
	return deployed
}

// deployed tells whether a node that has been looked at says that it was deployed, perhaps from
// elsewhere: what we remember is what was done from here.
func (l looks) deployed(node string) bool {
	one := l[node]
	if one == nil {
		return false
	}
	select {
	case <-one.over:
		return one.err == nil && saysDeployed(one.found)
	default:
		return false
	}
}

func saysDeployed(n activate.Node) bool { return n.Last != nil || len(n.Deployed) > 0 }

// outlast waits for what killed runs have left going on members. It may be what takes away
// what the nodes run together, which then cannot be asked, or is gone before it is asked again.
func (r *run) outlast(ctx context.Context, closures map[string]nixeval.Closure, looked looks) {
	var busy []nixeval.Node
	for _, n := range r.hive.Nodes {
		u, one := r.hive.Unit(n.Unit), looked[n.Name]
		if _, built := closures[n.Unit]; !built || u.Deployment.Engine == nil || one == nil {
			continue
		}
		select {
		case <-one.over:
			if one.err == nil && one.found.Last != nil && one.found.Last.Alive {
				busy = append(busy, n)
			}
		default: // it is new, and nobody waits for it
		}
	}
	Each(ctx, busy, r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
		r.Send.Send(event.Event{Kind: event.Message, Level: "note", Node: n.Name, Text: "an earlier run goes on there, and is waited for"})
		h, err := r.Fleet.Host(ctx, n)
		if err == nil {
			_, err = r.Activator.FinishPrevious(ctx, n.Name, h, closures[n.Unit].Out)
		}
		if err == nil { // else deploying the node says why
			looked[n.Name].found, looked[n.Name].err = r.lookAt(ctx, n)
		}
		return struct{}{}, nil
	})
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
		if i+1 == len(steps) || !l.oneByOne(steps[i+1]) || byName[steps[i+1][0].Name].recreates() {
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
	err := r.amid(ctx, l, node, !r.drains(t), func() error {
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

// failedTimeout is how long a unit may be failed at the end of a run. A failed unit hardly ever recovers.
const failedTimeout = 20 * time.Second

// proven waits until what the nodes run together is as the hive has it, and then until more
// conditions hold. Members are adjusted before, since they may be what others wait for; new ones once
// they are there.
func (r *run) proven(ctx context.Context, l living, nodes []nixeval.Node, more []check.Condition) error {
	if !r.Goal.runs() || len(l.engines) == 0 {
		return nil
	}
	var members, fresh []string
	silent := len(l.members) == 0
	for _, n := range nodes {
		silent = silent || l.members[n.Name].silent
		switch m, is := l.members[n.Name]; {
		case is && !m.anew && !m.silent:
			members = append(members, n.Name)
		case r.hive.Unit(n.Unit).Deployment.Engine != nil:
			fresh = append(fresh, n.Name)
		}
	}
	err := r.adjust(ctx, l, members)
	switch {
	case r.CheckTimeout == 0 && (err != nil || silent): // who cannot answer yet is not waited for
		return err
	case r.CheckTimeout == 0:
		return r.adjust(ctx, l, fresh)
	case err != nil: // it may just restart; the check waits for it, or says why it does not come
		fresh = append(members, fresh...)
	}
	var conditions []check.Condition
	for _, e := range l.engines {
		conditions = append(conditions, e.Conditions(false)...)
	}
	for _, c := range append(MemberConditions(l.engines, nodes, r.Parallel), more...) {
		c.Within = failedTimeout
		conditions = append(conditions, c)
	}
	waiting, cancel := context.WithTimeout(ctx, r.CheckTimeout)
	defer cancel()
	if _, err := check.Await(waiting, conditions, r.Send); err != nil {
		return err
	}
	return r.adjust(ctx, l, fresh)
}
