package deploy

import (
	"context"
	"fmt"
	"slices"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Machines of members are restarted and made anew in their nodes' turns, not all at once
// before anybody has looked at what lives.

// waits tells whether a change of a machine has to wait for its node's turn: something runs
// there together with others.
func (r *run) waits(c provision.Change) bool {
	known := r.Store.State()
	return (c.Action == provision.Restart || c.Action == provision.Recreate) && r.Engines != nil &&
		r.memberOf(c.Node) != nil && known.Nodes[c.Node].LastConfirmed != nil && !known.Unready(c.Node)
}

func (r *run) memberOf(node string) *engine.Member { return memberOf(r.hive, node) }

func memberOf(hive *nixeval.Hive, node string) *engine.Member {
	for _, members := range engine.Members(hive) {
		if i := slices.IndexFunc(members, func(m engine.Member) bool { return m.Node == node }); i >= 0 {
			return &members[i]
		}
	}
	return nil
}

// mayReplace refuses to make members anew where this run would not bring them in again.
func (r *run) mayReplace(g *ground) error {
	for _, c := range g.Changes {
		if c.Action == provision.Recreate && r.waits(c) && !r.Goal.runs() {
			return &provision.PlanError{
				Text: fmt.Sprintf("%s: its machine cannot be made anew by apply %s: as a member of a cluster it would leave, and not come in again before it has booted once more", c.Node, r.Goal),
				Fix:  "nixbench apply --recreate, which switches it at once",
			}
		}
	}
	return nil
}

// warned has changes that cost data say so where people are asked about them.
func (m *Machines) warned(g *ground, known *state.State) {
	for i := range g.Changes {
		c := &g.Changes[i]
		own := memberOf(m.Hive, c.Node)
		if c.Action != provision.Recreate || own == nil || !own.OneByOne || known.Nodes[c.Node].LastConfirmed == nil {
			continue
		}
		others := slices.ContainsFunc(engine.Members(m.Hive)[own.Kind], func(o engine.Member) bool {
			return o.OneByOne && o.Node != c.Node && known.Nodes[o.Node].LastConfirmed != nil
		})
		if others {
			c.Why += "; it holds the cluster's data, and gets them again from the others"
		} else {
			c.Why += "; it alone holds the cluster's data, which are lost"
		}
	}
}

// waiting tells whether any machine waits for its node's turn.
func (b *boots) waiting() bool {
	return b != nil && slices.ContainsFunc(sortedKeys(b.nodes), func(node string) bool { return b.nodes[node].later != nil })
}

// renewed deploys a node, once what was to be done with its machine is done.
func (r *run) renewed(ctx context.Context, t task) error {
	if t.machine == nil {
		return r.deploy(ctx, t)
	}
	address := r.Store.State().Machines[t.node.Name].Address
	err := t.machine.through(ctx, ctx)
	if now := r.Store.State().Machines[t.node.Name].Address; err == nil && now != address {
		err = &BootError{Node: t.node.Name, Err: fmt.Errorf("its address was %s and is %s now, which nobody has been told; run nixbench apply again", address, now)}
	}
	if err != nil {
		r.done(t.node, t.closure, state.Failed, "", err)
		return err
	}
	// What is there now is not what was looked at.
	one := &look{over: make(chan struct{})}
	one.found, one.err = r.lookAt(ctx, t.node)
	close(one.over)
	r.machines.nodes[t.node.Name].later = nil
	next, err := r.task(ctx, t.node, map[string]nixeval.Closure{t.node.Unit: t.closure}, one)
	if next == nil {
		return err
	}
	return r.deploy(ctx, *next)
}

// recreates tells whether the node loses all that is on its disks.
func (t task) recreates() bool {
	return t.machine != nil && t.machine.c.Action == provision.Recreate
}

// replace has a member leave for good, makes its machine anew, and waits until it has come in as
// a new member: the next one may hold what this one needs. So may one of which a run that was
// killed had made the machine anew.
func (r *run) replace(ctx context.Context, l living, m member, t task) error {
	node := t.node.Name
	for _, other := range r.entering(l, node) {
		if err := r.back(ctx, m, other); err != nil {
			err = &NodeError{Node: node, Step: event.Drain, Err: fmt.Errorf("it stays until all others are there that may only be changed one by one: %w", err)}
			r.done(t.node, t.closure, state.Failed, "", err)
			return err
		}
	}
	if err := r.farewell(ctx, []engine.Engine{m.engine}, []string{node}, r.WithoutDrain, r.Drain); err != nil {
		r.done(t.node, t.closure, state.Failed, "", err)
		return err
	}
	if err := r.renewed(ctx, t); err != nil {
		return err
	}
	if err := r.letIn(ctx, l, node); err != nil {
		return &NodeError{Node: node, Step: event.Drain, Err: err}
	}
	return r.back(ctx, m, node)
}

// entering are the nodes that this run has deployed to become members together with a node, of
// those that may only be changed one by one.
func (r *run) entering(l living, node string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, other := range engine.Members(r.hive)[r.memberOf(node).Kind] {
		m, is := l.members[other.Node]
		_, deployed := r.outcomes[other.Node]
		if other.OneByOne && deployed && (!is || m.anew) {
			out = append(out, other.Node)
		}
	}
	return out
}
