package deploy

import (
	"context"
	"fmt"
	"slices"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// mustWaitForTurn reports whether the change of a machine has to wait for its node's turn in the rolling update:
// the change restarts or recreates the machine of a member that was deployed. If all these machines changed at the
// start of the run, the running cluster would be interrupted.
func (r *run) mustWaitForTurn(c machine.Change) bool {
	recorded := r.Store.State()
	return (c.Action == machine.Restart || c.Action == machine.Recreate) && r.Engines != nil &&
		r.desiredMember(c.Node) != nil && recorded.Nodes[c.Node].LastConfirmed != nil && !recorded.Unready(c.Node)
}

func (r *run) desiredMember(node string) *engine.Member { return desiredMember(r.hive, node) }

// desiredMember returns the cluster member that the hive declares for a node, or nil.
func desiredMember(hive *nixeval.Hive, node string) *engine.Member {
	for _, members := range engine.MembersByKind(hive) {
		if i := slices.IndexFunc(members, func(m engine.Member) bool { return m.Node == node }); i >= 0 {
			return &members[i]
		}
	}
	return nil
}

// checkRecreate returns an error if the machine of a member would be recreated and the goal of the run does not
// activate systems. The member would be removed from the cluster and could not join again.
func (r *run) checkRecreate(g *machine.OpenPlan) error {
	for _, c := range g.Changes {
		if c.Action == machine.Recreate && r.mustWaitForTurn(c) && !r.Goal.ActivatesNow() {
			return &machine.PlanError{
				Text: fmt.Sprintf("%s: apply %s cannot recreate its machine: as a member of a cluster it would be removed, and could join again only after its next boot", c.Node, r.Goal),
				Fix:  "use nixbench apply --recreate, which also switches the node",
			}
		}
	}
	return nil
}

// addDataWarnings adds a warning to the reason of each change that deletes data of the cluster. The user reads
// the reason before approving the change.
func addDataWarnings(hive *nixeval.Hive, changes []machine.Change, recorded *state.State) {
	for i := range changes {
		c := &changes[i]
		desired := desiredMember(hive, c.Node)
		if c.Action != machine.Recreate && !c.Lost || desired == nil || !desired.OneByOne || recorded.Nodes[c.Node].LastConfirmed == nil {
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

// deployAfterMachineChange carries out the deferred change of the node's machine, if there is one, and then
// deploys the node.
func (r *run) deployAfterMachineChange(ctx context.Context, t task) error {
	if t.machine == nil {
		return r.deployNode(ctx, t)
	}
	address := r.Store.State().Machines[t.Node.Name].Address
	err := t.machine.Execute(ctx, ctx)
	if now := r.Store.State().Machines[t.Node.Name].Address; err == nil && now != address {
		err = &machine.BootError{Node: t.Node.Name, Err: fmt.Errorf("its address changed from %s to %s, and no other node has the new address; run nixbench apply again", address, now)}
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

// recreateMember removes a member from the cluster, recreates its machine, and waits until the node has joined
// again. The wait is needed because the next member to be recreated may hold data that this node has to copy.
// For the same reason, recreateMember first waits for other nodes that are about to join and may only be
// changed one at a time. A killed run may have recreated the machines of these nodes.
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
	var out []string
	for _, other := range engine.MembersByKind(r.hive)[r.desiredMember(node).Kind] {
		if other.OneByOne && r.hasOutcome(other.Node) && !cluster.IsCurrentMember(other.Node) {
			out = append(out, other.Node)
		}
	}
	return out
}
