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

// Machines of members are restarted and recreated one after the other in the rolling update, and not all
// at once before the cluster has been observed.

// mustWaitForTurn reports whether the change of a machine has to wait for its node's turn in the rolling
// update: its node is a member that was deployed.
func (r *run) mustWaitForTurn(c provision.Change) bool {
	recorded := r.Store.State()
	return (c.Action == provision.Restart || c.Action == provision.Recreate) && r.Engines != nil &&
		r.desiredMember(c.Node) != nil && recorded.Nodes[c.Node].LastConfirmed != nil && !recorded.Unready(c.Node)
}

func (r *run) desiredMember(node string) *engine.Member { return desiredMember(r.hive, node) }

func desiredMember(hive *nixeval.Hive, node string) *engine.Member {
	for _, members := range engine.Members(hive) {
		if i := slices.IndexFunc(members, func(m engine.Member) bool { return m.Node == node }); i >= 0 {
			return &members[i]
		}
	}
	return nil
}

// checkRecreate refuses to recreate machines of members if the goal of the run does not activate systems,
// because the members would be removed and not join again.
func (r *run) checkRecreate(g *machinePlan) error {
	for _, c := range g.Changes {
		if c.Action == provision.Recreate && r.mustWaitForTurn(c) && !r.Goal.activatesNow() {
			return &provision.PlanError{
				Text: fmt.Sprintf("%s: apply %s cannot recreate its machine: as a member of a cluster it would be removed, and could join again only after its next boot", c.Node, r.Goal),
				Fix:  "use nixbench apply --recreate, which also switches the node",
			}
		}
	}
	return nil
}

// addDataWarnings adds to the reason of a change, which the user is asked to approve, that it costs data of
// the cluster.
func (m *Machines) addDataWarnings(g *machinePlan, recorded *state.State) {
	for i := range g.Changes {
		c := &g.Changes[i]
		desired := desiredMember(m.Hive, c.Node)
		if c.Action != provision.Recreate || desired == nil || !desired.OneByOne || recorded.Nodes[c.Node].LastConfirmed == nil {
			continue
		}
		others := slices.ContainsFunc(engine.Members(m.Hive)[desired.Kind], func(o engine.Member) bool {
			return o.OneByOne && o.Node != c.Node && recorded.Nodes[o.Node].LastConfirmed != nil
		})
		if others {
			c.Why += "; it has a replica of the cluster's data, and copies the data from the other members afterwards"
		} else {
			c.Why += "; it is the only member with the cluster's data, which are lost"
		}
	}
}

// anyMachineDeferred reports whether a machine waits for its node's turn.
func (b *machineSet) anyMachineDeferred() bool {
	return b != nil && slices.ContainsFunc(sortedKeys(b.results), func(node string) bool { return b.results[node].deferred != nil })
}

// deployAfterMachineChange deploys a node after the change of its machine, if there is one, is complete.
func (r *run) deployAfterMachineChange(ctx context.Context, t task) error {
	if t.machine == nil {
		return r.deployNode(ctx, t)
	}
	address := r.Store.State().Machines[t.node.Name].Address
	err := t.machine.execute(ctx, ctx)
	if now := r.Store.State().Machines[t.node.Name].Address; err == nil && now != address {
		err = &BootError{Node: t.node.Name, Err: fmt.Errorf("its address changed from %s to %s, and no other node has the new address; run nixbench apply again", address, now)}
	}
	if err != nil {
		r.recordOutcome(t.node, t.closure, state.Failed, "", err)
		return err
	}
	// The machine has changed, so its node is inspected again.
	inspection := &inspection{done: make(chan struct{})}
	inspection.observed, inspection.err = r.inspectNode(ctx, t.node)
	close(inspection.done)
	r.machines.results[t.node.Name].deferred = nil
	next, err := r.newTask(ctx, t.node, map[string]nixeval.Closure{t.node.Unit: t.closure}, inspection)
	if next == nil {
		return err
	}
	return r.deployNode(ctx, *next)
}

// recreatesMachine reports whether the machine is recreated, so that everything on its disks is lost.
func (t task) recreatesMachine() bool {
	return t.machine != nil && t.machine.change.Action == provision.Recreate
}

// recreateMember removes a member from the cluster, recreates its machine, and waits until the node has
// joined again, because the next member to be recreated may hold data that this one needs. For the same
// reason it first waits for nodes that may only be changed one at a time and are about to join. A killed
// run may have recreated the machines of those.
func (r *run) recreateMember(ctx context.Context, cluster clusterState, m member, t task) error {
	node := t.node.Name
	for _, other := range r.joiningMembers(cluster, node) {
		if err := r.uncordonWhenReady(ctx, m, other); err != nil {
			err = &NodeError{Node: node, Step: event.Drain, Err: fmt.Errorf("it is not recreated while another member that must change alone has not joined: %w", err)}
			r.recordOutcome(t.node, t.closure, state.Failed, "", err)
			return err
		}
	}
	if err := r.removeMembers(ctx, []engine.Engine{m.engine}, []string{node}, r.WithoutDrain, r.Drain); err != nil {
		r.recordOutcome(t.node, t.closure, state.Failed, "", err)
		return err
	}
	if err := r.deployAfterMachineChange(ctx, t); err != nil {
		return err
	}
	if err := r.admitOnce(ctx, cluster, node); err != nil {
		return &NodeError{Node: node, Step: event.Drain, Err: err}
	}
	return r.uncordonWhenReady(ctx, m, node)
}

// joiningMembers returns the nodes of the same engine that may only be changed one at a time, that this run
// has deployed, and that are not members yet.
func (r *run) joiningMembers(cluster clusterState, node string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, other := range engine.Members(r.hive)[r.desiredMember(node).Kind] {
		m, isMember := cluster.members[other.Node]
		_, deployed := r.outcomes[other.Node]
		if other.OneByOne && deployed && (!isMember || m.recreated) {
			out = append(out, other.Node)
		}
	}
	return out
}
