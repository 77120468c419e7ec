package deploy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// living is what runs on the nodes already. Its members are changed a few at a time, and
// their work is taken away before; nodes that are no members yet are nobody's loss.
type living struct {
	engines []engine.Engine
	members map[string]member
}

type member struct {
	engine engine.Engine
	engine.Status
	// anew: the machine was made anew, and knows nothing of what it was a member of.
	anew bool
}

// living asks the engines of nodes that have been deployed before. Before the first
// deployment there is nobody to ask, and no node waits for the answer.
func (r *run) living(ctx context.Context, closures map[string]nixeval.Closure, looked looks) (living, error) {
	if r.Engines == nil { // a node by itself
		return living{}, nil
	}
	engines, err := r.Engines.Of(r.hive, r.Fleet)
	l := living{engines: engines, members: map[string]member{}}
	if err != nil || !r.Goal.runs() || !r.anyDeployed(looked) {
		return l, err
	}
	r.outlast(ctx, closures, looked)
	for _, e := range engines {
		members, err := e.Members(ctx)
		if ctx.Err() != nil {
			return l, context.Cause(ctx)
		}
		if err != nil {
			// What cannot be asked cannot be drained either, and this run may be what mends it.
			r.Send.Send(event.Event{Kind: event.Message, Level: "warning",
				Text: fmt.Sprintf("nodes are changed without taking their work away before: %v", err)})
			continue
		}
		for node, status := range members {
			l.members[node] = member{engine: e, Status: status, anew: r.anew(node, looked)}
		}
	}
	return l, nil
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
			_, err = r.Activator.Settle(ctx, n.Name, h, closures[n.Unit].Out)
		}
		if err == nil { // else deploying the node says why
			looked[n.Name].found, looked[n.Name].err = r.lookAt(ctx, n)
		}
		return struct{}{}, nil
	})
}

// runs tells whether systems are run now.
func (g Goal) runs() bool { return g == Switch || g == Test }

// steps cuts tasks into waves, of which one follows the other. Who does not change is in
// the first: nothing restarts there, so no wave need wait for it. In a living cluster so
// are nodes that are no members yet; then come members that may only be changed one by
// one, and then the others, share of them at a time.
func (l living) steps(todo []task, share plan.Share, activates bool) [][]task {
	var first, single, others []task
	for _, t := range todo {
		m, is := l.members[t.node.Name]
		switch {
		case t.same || !activates || (!is || m.anew) && len(l.members) > 0:
			first = append(first, t)
		case is && m.OneByOne:
			single = append(single, t)
		default:
			others = append(others, t)
		}
	}
	if share.All() && len(l.members) > 0 {
		share = plan.One
	}
	var out [][]task
	for _, t := range single {
		out = append(out, []task{t})
	}
	out = append(out, plan.Waves(others, share)...)
	if len(out) == 0 || len(l.members) > 0 {
		return append([][]task{first}, out...)
	}
	out[0] = append(first, out[0]...)
	return out
}

// oneByOne tells whether a wave is of such members.
func (l living) oneByOne(wave []task) bool {
	return len(wave) == 1 && l.members[wave[0].node.Name].OneByOne
}

// roll deploys one node of a living cluster: its work is taken away before and given back
// after, whatever becomes of the deployment.
func (r *run) roll(ctx context.Context, l living, t task) error {
	m, is := l.members[t.node.Name]
	if m.anew {
		if err := r.forget(ctx, m, t.node.Name); err != nil {
			r.done(t.node, t.closure, state.Failed, "", err)
			return err
		}
		is = false
	}
	if !is {
		err := r.deploy(ctx, t)
		if err == nil && r.Goal.runs() && len(l.members) == 0 {
			r.invite(ctx, l, t.node.Name)
		}
		return err
	}
	if r.WithoutDrain || t.same && !m.Left {
		return r.deploy(ctx, t)
	}
	return r.around(ctx, m, t, func() error { return r.deploy(ctx, t) })
}

func (r *run) around(ctx context.Context, m member, t task, deploy func() error) error {
	name := t.node.Name
	if !t.same {
		if err := r.drain(ctx, m, name); err != nil {
			err = &NodeError{Node: name, Step: event.Drain, Err: err}
			r.done(t.node, t.closure, state.Failed, "", err)
			return err
		}
	}
	err := deploy()
	back := ctx
	if err != nil {
		// Mostly it runs what it ran before, and can take work at once.
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), backTimeout)
		defer cancel()
		back = limited
	}
	r.Send.Send(event.Event{Kind: event.NodeStart, Phase: event.Drain, Node: name, Text: "takes work again"})
	returned := m.engine.Return(back, name)
	r.Send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Drain, Node: name, Failed: returned != nil})
	if returned != nil {
		err = errors.Join(err, &NodeError{Node: name, Step: event.Drain, Err: returned})
	}
	return err
}

// backTimeout bounds giving work back where something has failed.
const backTimeout = 30 * time.Second

// drain takes the work away; a node that does not let go of it keeps it.
func (r *run) drain(ctx context.Context, m member, name string) error {
	r.Send.Send(event.Event{Kind: event.NodeStart, Phase: event.Drain, Node: name})
	err := m.engine.Leave(ctx, name, false)
	r.Send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Drain, Node: name, Failed: err != nil})
	if err == nil {
		return nil
	}
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), backTimeout)
	defer cancel()
	return errors.Join(err, m.engine.Return(back, name))
}

// proven waits until what the nodes run together is as the hive has it. Members are adjusted
// before, since they may be what others wait for; new ones once they are there.
func (r *run) proven(ctx context.Context, l living, nodes []nixeval.Node) error {
	if !r.Goal.runs() || len(l.engines) == 0 {
		return nil
	}
	var members, fresh []string
	for _, n := range nodes {
		switch m, is := l.members[n.Name]; {
		case is && !m.anew:
			members = append(members, n.Name)
		case r.hive.Unit(n.Unit).Deployment.Engine != nil:
			fresh = append(fresh, n.Name)
		}
	}
	err := r.adjust(ctx, l, members)
	switch {
	case r.CheckTimeout == 0:
		return err
	case err != nil: // it may just restart; the check waits for it, or says why it does not come
		fresh = append(members, fresh...)
	}
	var conditions []check.Condition
	for _, e := range l.engines {
		conditions = append(conditions, e.Conditions(false)...)
	}
	waiting, cancel := context.WithTimeout(ctx, r.CheckTimeout)
	defer cancel()
	if _, err := check.Await(waiting, conditions, r.Send); err != nil {
		return err
	}
	return r.adjust(ctx, l, fresh)
}
