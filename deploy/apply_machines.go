package deploy

import (
	"context"
	"slices"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/machines"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// startMachines plans the changes of the nodes' machines, starts to carry them out, and writes the facts.
// It returns the machines, which are nil if there are none to boot, and the facts file for the
// evaluation, which is empty if there are no facts.
//
// On a network that nixbench manages, it assigns the addresses, so the facts are complete at once.
// On any other network they are complete when every machine has an address.
func (r *run) startMachines(ctx context.Context, nodes []nixeval.Node) (*machines.Set, string, error) {
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
	r.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Provision, Total: len(machines.Booted(r.hive, nodes))})
	starter := &machines.Starter{Manager: m, Fleet: r.Fleet, Store: r.Store, RunID: r.Record.ID(), Parallel: r.Parallel, BootTimeout: r.BootTimeout, Deferred: r.mustWaitForTurn}
	set, err := r.startPlannedMachines(ctx, starter, selected)
	if err != nil {
		r.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Provision, Failed: true})
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

// factsFile returns the facts file for the evaluation; empty if the user has named another one.
func (r *run) factsFile() string {
	if r.Eval.Facts != "" {
		return ""
	}
	return r.Machines.FactsFile()
}

// startPlannedMachines makes the machine plan, asks the user about running machines that it stops, and
// records and starts it.
func (r *run) startPlannedMachines(ctx context.Context, starter *machines.Starter, selected []nixeval.Node) (*machines.Set, error) {
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

// planMachines plans the changes of machines. A change that costs data of the cluster says so.
func (d *Deployer) planMachines(ctx context.Context, recorded *state.State, selected []nixeval.Node, recreate bool) (*machines.Plan, error) {
	plan, err := d.Machines.MakePlan(ctx, recorded, selected, recreate)
	if err == nil {
		addDataWarnings(d.Machines.Hive, plan.Changes, recorded)
	}
	return plan, err
}

// selectMachines returns the nodes whose machines are selected; nil for all. A node that cannot
// be evaluated gets no machine.
func (r *run) selectMachines(nodes []nixeval.Node) []nixeval.Node {
	selected := slices.DeleteFunc(machines.Booted(r.hive, nodes), func(n nixeval.Node) bool { return r.hive.Broken[n.Unit] != nil })
	switch {
	case len(r.hive.Broken) > 0 && !r.KeepGoing:
		return []nixeval.Node{} // the evaluation reports the reason
	case r.Partial || len(r.hive.Broken) > 0:
		return append([]nixeval.Node{}, selected...)
	}
	return nil
}

// removeObsoleteMachines removes the machines that the hive no longer has, and unused images and networks.
// It is called after everything else has succeeded.
func (r *run) removeObsoleteMachines(ctx context.Context, set *machines.Set, cluster rollout.Cluster) error {
	obsolete, unused := set.Obsolete()
	if !unused {
		return nil
	}
	// The engines are asked whatever the goal is, and even if they were asked before: only they can
	// tell whether a cluster still depends on these nodes.
	if err := rollout.RemoveMembers(ctx, cluster.Engines(), machines.RemovedNodes(obsolete), r.WithoutDrain, r.Drain, r.Send); err != nil {
		return err
	}
	return set.RemoveObsolete(ctx, r.Record, obsolete)
}
