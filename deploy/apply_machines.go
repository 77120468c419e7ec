package deploy

import (
	"context"
	"slices"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// startMachines plans the changes of the nodes' machines, starts the changes, and writes the facts. It returns
// the set of machines, or nil if no machine has to be booted, and the path of the facts file for the
// evaluation, or "" if there are no facts.
//
// On a network that nixbench manages, nixbench assigns the addresses, so the facts are complete before the
// machines boot. On any other network, startMachines waits until every machine has an address.
func (r *run) startMachines(ctx context.Context, nodes []nixeval.Node) (*machine.Set, string, error) {
	m := r.Machines
	if m == nil {
		return nil, "", nil
	}
	if !m.HasMachines(r.Store.State()) {
		if !m.GeneratesSecrets() || r.Goal == node.UploadKeys {
			return nil, "", nil
		}
		err := m.WriteFacts(r.Store.State())
		return nil, r.factsFile(), err
	}
	selected := r.selectMachines(nodes)
	if !r.Goal.Activates() || selected != nil && len(selected) == 0 {
		return nil, r.factsFile(), nil
	}
	r.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Provision, Total: len(machine.Booted(r.hive, nodes))})
	starter := &machine.Starter{Manager: m, Fleet: r.Fleet, Store: r.Store, RunID: r.Record.ID(), Parallel: r.Parallel, BootTimeout: r.BootTimeout, Deferred: r.mustWaitForTurn}
	set, err := r.startPlannedMachines(ctx, starter, selected)
	if err != nil {
		if failure.KindOf(err) != failure.Declined { // the phase had ended before the question
			r.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Provision, Failed: true})
		}
		return nil, "", err
	}
	if !set.AssignsAddresses() {
		err := set.AwaitAddresses()
		if err == nil || r.KeepGoing && ctx.Err() == nil {
			err = m.WriteFacts(r.Store.State()) // the facts leave out nodes without an address
		}
		if err != nil {
			set.AbandonWaits()
			return set, "", err
		}
	}
	return set, r.factsFile(), nil
}

// factsFile returns the path of the facts file for the evaluation, or "" if the user has selected another facts
// file.
func (r *run) factsFile() string {
	if r.Eval.Facts != "" {
		return ""
	}
	return r.Machines.FactsFile()
}

// startPlannedMachines makes the machine plan, asks the user to approve the plan if it stops running machines,
// writes the plan to the state, and starts its changes.
func (r *run) startPlannedMachines(ctx context.Context, starter *machine.Starter, selected []nixeval.Node) (*machine.Set, error) {
	plan, err := r.planMachines(ctx, r.Store.State(), selected, r.Recreate)
	if err != nil {
		return nil, err
	}
	if err = r.checkRecreate(plan); err == nil {
		err = starter.AskAndRecord(plan, r.Record, selected == nil)
	}
	if err != nil {
		plan.Close()
		return nil, err
	}
	return starter.Start(ctx, plan), nil
}

// planMachines plans the changes of machines. The reason of a change contains a warning if the change deletes
// data of the cluster.
func (d *Deployer) planMachines(ctx context.Context, recorded *state.State, selected []nixeval.Node, recreate bool) (*machine.OpenPlan, error) {
	plan, err := d.Machines.MakePlan(ctx, recorded, selected, recreate)
	if err == nil {
		addDataWarnings(d.Machines.Hive, plan.Changes, recorded)
	}
	return plan, err
}

// selectMachines returns the nodes whose machines may change; nil means all machines. A node that cannot be
// evaluated is left out, so that no machine is created for it.
func (r *run) selectMachines(nodes []nixeval.Node) []nixeval.Node {
	selected := slices.DeleteFunc(machine.Booted(r.hive, nodes), func(n nixeval.Node) bool { return r.hive.Broken[n.Unit] != nil })
	switch {
	case len(r.hive.Broken) > 0 && !r.KeepGoing:
		return []nixeval.Node{} // the evaluation reports the reason
	case r.Partial || len(r.hive.Broken) > 0:
		return append([]nixeval.Node{}, selected...)
	}
	return nil
}

// removeObsoleteMachines removes the machines that are no longer in the hive, and unused images and networks.
// It is called after all nodes were deployed without an error.
func (r *run) removeObsoleteMachines(ctx context.Context, set *machine.Set, cluster rollout.Cluster) error {
	obsolete, unused := set.Obsolete()
	if !unused {
		return nil
	}
	// The engines are asked for their members with every goal, and also if they were asked before: only an
	// engine can report whether a removed node is still a member.
	if err := cluster.RemoveMembers(ctx, machine.RemovedNodes(obsolete), r.WithoutDrain, r.Drain); err != nil {
		return err
	}
	return set.RemoveObsolete(ctx, r.Record, obsolete)
}
