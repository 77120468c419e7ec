package stages

import (
	"context"
	"fmt"
	"slices"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// startMachines plans the changes of the nodes' machines, starts these changes, and writes the facts. It returns the set of
// machines; nil if no machine has to be booted. It also returns the path of the facts file for the evaluation, or "" if there are
// no facts.
//
// On a network that nixbench manages, nixbench assigns the addresses, so the facts are complete before the
// machines boot. On any other network, startMachines waits until every machine has an address.
func (d deployment) startMachines(ctx context.Context) (*machine.Set, string, error) {
	m := d.Machines
	if m == nil {
		return nil, "", nil
	}
	if !m.HasMachines(d.Store.State()) {
		if !m.GeneratesSecrets() || d.Goal == node.UploadKeys {
			return nil, "", nil
		}
		err := m.WriteFacts(d.Store.State())
		return nil, d.factsFile(), err
	}
	selected := d.selectMachines()
	if !d.Goal.Activates() || selected != nil && len(selected) == 0 {
		return nil, d.factsFile(), nil
	}
	d.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Provision, Total: len(machine.Booted(d.hive, d.nodes))})
	starter := &machine.Starter{Manager: m, Fleet: d.Fleet, Store: d.Store, RunID: d.Record.ID(), Parallel: d.Parallel, BootTimeout: d.BootTimeout, Deferred: d.mustWaitForTurn}
	set, err := d.startPlannedMachines(ctx, starter, selected)
	if err != nil {
		if failure.KindOf(err) != failure.Declined { // the phase had ended before the question
			d.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Provision, Failed: true})
		}
		return nil, "", err
	}
	if !set.AssignsAddresses() {
		err := set.AwaitAddresses()
		if err == nil || d.KeepGoing && ctx.Err() == nil {
			err = m.WriteFacts(d.Store.State()) // the facts leave out nodes without an address
		}
		if err != nil {
			set.AbandonWaits()
			return set, "", err
		}
	}
	return set, d.factsFile(), nil
}

// factsFile returns the path of the facts file that nixbench writes, for the evaluation. It returns "" if the user has chosen
// another facts file.
func (d deployment) factsFile() string {
	if d.Eval.Facts != "" {
		return ""
	}
	return d.Machines.FactsFile()
}

// startPlannedMachines makes the machine plan, asks the user to approve the plan if it stops running machines,
// writes the plan to the state, and starts its changes.
func (d deployment) startPlannedMachines(ctx context.Context, starter *machine.Starter, selected []nixeval.Node) (*machine.Set, error) {
	changes, err := d.planMachines(ctx, d.Store.State(), selected, d.Recreate)
	if err != nil {
		return nil, err
	}
	if err = d.checkRecreate(changes); err == nil {
		err = starter.AskAndRecord(changes, d.Record, selected == nil)
	}
	if err != nil {
		changes.Close()
		return nil, err
	}
	return starter.Start(ctx, changes), nil
}

// planMachines plans the changes of machines. If a change deletes data of the cluster, the text of its reason contains a warning
// about the data.
func (d *Deployer) planMachines(ctx context.Context, recorded *state.State, selected []nixeval.Node, recreate bool) (*machine.OpenPlan, error) {
	changes, err := d.Machines.MakePlan(ctx, recorded, selected, recreate)
	if err == nil {
		addDataWarnings(d.Machines.Hive, changes.Changes, recorded)
	}
	return changes, err
}

// selectMachines returns the nodes whose machines may change; nil means all machines. A node that cannot be
// evaluated is left out, so that no machine is created for it.
func (d deployment) selectMachines() []nixeval.Node {
	selected := slices.DeleteFunc(machine.Booted(d.hive, d.nodes), func(n nixeval.Node) bool { return d.hive.Broken[n.Unit] != nil })
	switch {
	case len(d.hive.Broken) > 0 && !d.KeepGoing:
		return []nixeval.Node{} // the evaluation reports the reason
	case d.Partial || len(d.hive.Broken) > 0:
		return append([]nixeval.Node{}, selected...)
	}
	return nil
}

// mustWaitForTurn reports whether the change of a machine must wait for its node's turn in the rolling update. This is so if the
// change restarts or recreates the machine of a deployed member. If the machines of all members changed at the start of the run,
// the running cluster would be interrupted.
func (d deployment) mustWaitForTurn(c changes.Change) bool {
	recorded := d.Store.State()
	return (c.Action == changes.Restart || c.Action == changes.Recreate) && d.Engines != nil &&
		desiredMember(d.hive, c.Node) != nil && recorded.Nodes[c.Node].LastConfirmed != nil && !recorded.Unready(c.Node)
}

// desiredMember returns the cluster member that the hive declares for a node, or nil.
func desiredMember(hive *nixeval.Hive, node string) *engine.Member {
	for _, members := range engine.MembersByKind(hive) {
		if i := slices.IndexFunc(members, func(m engine.Member) bool { return m.Node == node }); i >= 0 {
			return &members[i]
		}
	}
	return nil
}

// checkRecreate returns an error if the plan recreates the machine of a deployed member, but the goal of the run does not activate
// systems now. Such a member would be removed from the cluster, and could join again only after its next boot.
func (d deployment) checkRecreate(g *machine.OpenPlan) error {
	for _, c := range g.Changes {
		if c.Action == changes.Recreate && d.mustWaitForTurn(c) && !d.Goal.ActivatesNow() {
			return &changes.PlanError{
				Text: fmt.Sprintf("%s: apply %s cannot recreate its machine: as a member of a cluster it would be removed, and could join again only after its next boot", c.Node, d.Goal),
				Fix:  "use nixbench apply --recreate, which also switches the node",
			}
		}
	}
	return nil
}

// addDataWarnings adds a warning to the reason of each change that deletes data of the cluster. The user reads
// the reason before approving the change.
func addDataWarnings(hive *nixeval.Hive, all []changes.Change, recorded *state.State) {
	for i := range all {
		c := &all[i]
		desired := desiredMember(hive, c.Node)
		if c.Action != changes.Recreate && !c.Lost || desired == nil || !desired.OneByOne || recorded.Nodes[c.Node].LastConfirmed == nil {
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

// changeMachine carries out the deferred change of a node's machine. Then it inspects the node again, and returns the node's
// deployment.
func (r *run) changeMachine(ctx context.Context, n plan.Node) (node.Task, error) {
	name := n.Node.Name
	address := r.Store.State().Machines[name].Address
	err := r.machines.DeferredTask(name).Execute(ctx, ctx)
	if now := r.Store.State().Machines[name].Address; err == nil && now != address {
		err = &machine.BootError{Node: name, Err: fmt.Errorf("its address changed from %s to %s, and no other node has the new address; run nixbench apply again", address, now)}
	}
	if err != nil {
		return node.Task{}, err
	}
	again := &preparation{inspected: make(chan struct{})}
	again.observed, again.err = r.nodeChanger().Inspect(ctx, n.Node)
	close(again.inspected)
	r.machines.ClearDeferred(name)
	next, t := r.newTask(ctx, n.Node, n.Closure, n.Built, again)
	return t, next.Err
}

// removeObsoleteMachines removes the machines of nodes that are no longer in the hive, and unused images and networks. It is
// called after all nodes were deployed without an error.
func (r *run) removeObsoleteMachines(ctx context.Context, cluster rollout.Cluster) error {
	obsolete, unused := r.machines.Obsolete()
	if !unused {
		return nil
	}
	// The engines are asked for their members with every goal, and also if they were asked before: only an
	// engine can report whether a removed node is still a member.
	if err := cluster.RemoveMembers(ctx, machine.RemovedNodes(obsolete), r.WithoutDrain, r.Drain); err != nil {
		return err
	}
	return r.machines.RemoveObsolete(ctx, r.Record, obsolete)
}
