package deploy

import (
	"context"
	"fmt"
	"slices"

	"github.com/nixbench/nixbench/deploy/rollout"

	"github.com/nixbench/nixbench/deploy/machines"

	"github.com/nixbench/nixbench/deploy/fleet"

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
	for _, members := range engine.MembersByKind(hive) {
		if i := slices.IndexFunc(members, func(m engine.Member) bool { return m.Node == node }); i >= 0 {
			return &members[i]
		}
	}
	return nil
}

// checkRecreate refuses to recreate machines of members if the goal of the run does not activate systems,
// because the members would be removed and not join again.
func (r *run) checkRecreate(g *machines.Plan) error {
	for _, c := range g.Changes {
		if c.Action == provision.Recreate && r.mustWaitForTurn(c) && !r.Goal.ActivatesNow() {
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
func addDataWarnings(hive *nixeval.Hive, changes []provision.Change, recorded *state.State) {
	for i := range changes {
		c := &changes[i]
		desired := desiredMember(hive, c.Node)
		if c.Action != provision.Recreate || desired == nil || !desired.OneByOne || recorded.Nodes[c.Node].LastConfirmed == nil {
			continue
		}
		others := slices.ContainsFunc(engine.MembersByKind(hive)[desired.Kind], func(o engine.Member) bool {
			return o.OneByOne && o.Node != c.Node && recorded.Nodes[o.Node].LastConfirmed != nil
		})
		if others {
			c.Why += "; it has a replica of the cluster's data, and copies the data from the other members afterwards"
		} else {
			c.Why += "; it is the only member with the cluster's data, which are lost"
		}
	}
}

// deployAfterMachineChange deploys a node after the change of its machine, if there is one, is complete.
func (r *run) deployAfterMachineChange(ctx context.Context, t task) error {
	if t.machine == nil {
		return r.deployNode(ctx, t)
	}
	address := r.Store.State().Machines[t.Node.Name].Address
	err := t.machine.Execute(ctx, ctx)
	if now := r.Store.State().Machines[t.Node.Name].Address; err == nil && now != address {
		err = &machines.BootError{Node: t.Node.Name, Err: fmt.Errorf("its address changed from %s to %s, and no other node has the new address; run nixbench apply again", address, now)}
	}
	if err != nil {
		r.recordOutcome(t.Node, t.Closure, state.Failed, "", err)
		return err
	}
	// The machine has changed, so its node is inspected again.
	inspection := &inspection{done: make(chan struct{})}
	inspection.observed, inspection.err = r.nodeChanger().Inspect(ctx, t.Node)
	close(inspection.done)
	r.machines.ClearDeferred(t.Node.Name)
	next, err := r.newTask(ctx, t.Node, map[string]nixeval.Closure{t.Node.Unit: t.Closure}, inspection)
	if next == nil {
		return err
	}
	return r.deployNode(ctx, *next)
}

// recreateMember removes a member from the cluster, recreates its machine, and waits until the node has
// joined again, because the next member to be recreated may hold data that this one needs. For the same
// reason it first waits for nodes that may only be changed one at a time and are about to join. A killed
// run may have recreated the machines of those.
func (r *run) recreateMember(ctx context.Context, cluster rollout.Cluster, t task) error {
	node := t.Node.Name
	for _, other := range r.joiningMembers(cluster, node) {
		if err := cluster.AwaitJoin(ctx, node, other); err != nil {
			err = &fleet.NodeError{Node: node, Step: event.Drain, Err: fmt.Errorf("it is not recreated while another member that must change alone has not joined: %w", err)}
			r.recordOutcome(t.Node, t.Closure, state.Failed, "", err)
			return err
		}
	}
	if err := cluster.RemoveMember(ctx, node, r.WithoutDrain); err != nil {
		r.recordOutcome(t.Node, t.Closure, state.Failed, "", err)
		return err
	}
	if err := r.deployAfterMachineChange(ctx, t); err != nil {
		return err
	}
	if err := cluster.Admit(ctx, node); err != nil {
		return &fleet.NodeError{Node: node, Step: event.Drain, Err: err}
	}
	return cluster.UncordonWhenReady(ctx, node)
}

// joiningMembers returns the nodes of the same engine that may only be changed one at a time, that this run
// has deployed, and that are not members yet.
func (r *run) joiningMembers(cluster rollout.Cluster, node string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, other := range engine.MembersByKind(r.hive)[r.desiredMember(node).Kind] {
		_, deployed := r.outcomes[other.Node]
		if other.OneByOne && deployed && !cluster.HasMember(other.Node) {
			out = append(out, other.Node)
		}
	}
	return out
}
