package stages

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
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

// startMachines plans the changes of the nodes' machines, starts these changes, and writes the facts. It sets the machines of the
// run. It returns the path of the facts file for the evaluation, or "" if there are no facts.
//
// On a network that nixbench manages, nixbench assigns the addresses, so the facts are complete before the
// machines boot. On any other network, startMachines waits until every machine has an address.
func (r *run) startMachines(ctx context.Context) (facts string, err error) {
	m := r.Machines
	if m == nil {
		return "", nil
	}
	if !m.HasMachines(r.Store.State()) {
		if !m.GeneratesSecrets() || r.Goal == node.UploadKeys {
			return "", nil
		}
		err := m.WriteFacts(r.Store.State())
		return r.factsFile(), err
	}
	selected := r.selectMachines()
	if !r.Goal.Activates() || selected != nil && len(selected) == 0 {
		return r.factsFile(), nil
	}
	r.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Provision, Total: len(machine.Booted(r.hive, r.nodes))})
	if err := r.startPlannedMachines(ctx, selected); err != nil {
		if failure.KindOf(err) != failure.Declined { // the phase had ended before the question
			r.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Provision, Failed: true})
		}
		return "", err
	}
	if !r.machines.AssignsAddresses() {
		err := r.machines.AwaitAddresses()
		if err == nil || r.KeepGoing && ctx.Err() == nil {
			err = m.WriteFacts(r.Store.State()) // the facts leave out nodes without an address
		}
		if err != nil {
			r.machines.AbandonWaits()
			return "", err
		}
	}
	return r.factsFile(), nil
}

// factsFile returns the path of the facts file that nixbench writes, for the evaluation; "" if the user has chosen another one.
func (r *Deployer) factsFile() string {
	if r.Eval.Facts != "" {
		return ""
	}
	return r.Machines.FactsFile()
}

// startPlannedMachines makes the machine plan, asks the user to approve the plan if it stops running machines,
// writes the plan to the state, and starts its changes.
func (r *run) startPlannedMachines(ctx context.Context, selected []nixeval.Node) error {
	starter := &machine.Starter{Manager: r.Machines, Fleet: r.Fleet, Store: r.Store, RunID: r.RunID, Parallel: r.Parallel, BootTimeout: r.BootTimeout, Deferred: r.mustWaitForTurn}
	changes, err := r.planMachines(ctx, selected)
	if err != nil {
		return err
	}
	if err = checkRecreate(r, changes); err == nil {
		err = starter.AskAndRecord(changes, r.Record, selected == nil)
	}
	if err != nil {
		changes.Close()
		return err
	}
	r.machines = starter.Start(ctx, changes)
	return nil
}

// planMachines plans the changes of machines. The reason of a change that deletes data of the cluster warns about this.
func (r *run) planMachines(ctx context.Context, selected []nixeval.Node) (*machine.OpenPlan, error) {
	recorded := r.Store.State()
	changes, err := r.Machines.MakePlan(ctx, recorded, selected, r.Recreate)
	if err == nil {
		addDataWarnings(r.hive, changes.Changes, recorded)
	}
	return changes, err
}

// selectMachines returns the nodes whose machines may change; nil means all machines. A node that cannot be
// evaluated is left out, so that no machine is created for it.
func (r *run) selectMachines() []nixeval.Node {
	selected := slices.DeleteFunc(machine.Booted(r.hive, r.nodes), func(n nixeval.Node) bool { return r.hive.Broken[n.Unit] != nil })
	switch {
	case len(r.hive.Broken) > 0 && !r.KeepGoing:
		return []nixeval.Node{} // the evaluation reports the reason
	case r.Partial || len(r.hive.Broken) > 0:
		return append([]nixeval.Node{}, selected...)
	}
	return nil
}

// mustWaitForTurn reports whether the change of a machine must wait for its node's turn in the rolling update. This is so if the
// change restarts or recreates the machine of a deployed member. If the machines of all members changed at the start of the run,
// the running cluster would be interrupted.
func (r *run) mustWaitForTurn(c changes.Change) bool {
	recorded := r.Store.State()
	return (c.Action == changes.Restart || c.Action == changes.Recreate) && r.Engines != nil &&
		desiredMember(r.hive, c.Node) != nil && recorded.Nodes[c.Node].LastConfirmed != nil && !recorded.HasIntent(c.Node, state.MakeMachine)
}

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
func checkRecreate(r *run, g *machine.OpenPlan) error {
	for _, c := range g.Changes {
		if c.Action == changes.Recreate && r.mustWaitForTurn(c) && !r.Goal.ActivatesNow() {
			return changes.NewPlanError("use nixbench apply --recreate, which also switches the node", "%s: apply %s cannot recreate its machine: "+
				"as a member of a cluster it would be removed, and could join again only after its next boot", c.Node, r.Goal)
		}
	}
	return nil
}

// addDataWarnings adds a warning to the reason of each change that deletes data of the cluster, which the user reads and approves.
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

// changeMachine carries out the deferred change of a node's machine, inspects the node again, and returns what the run does to it now.
func (r *run) changeMachine(ctx context.Context, n plan.Node) plan.Node {
	name := n.Node.Name
	address := r.Store.State().Machines[name].Address
	n.Err = r.machines.ExecuteDeferred(ctx, name)
	if now := r.Store.State().Machines[name].Address; n.Err == nil && now != address {
		n.Err = &machine.BootError{Node: name, Err: fmt.Errorf("its address changed from %s to %s, and no other node has the new address; run nixbench apply again", address, now)}
	}
	if n.Err != nil {
		return n
	}
	again := &preparation{}
	again.observed, again.err = r.Inspect(ctx, n.Node)
	next := r.decideNode(ctx, n.Node, n.Closure, n.Built, again)
	next.AfterLogin, next.Transferred = n.AfterLogin, false
	return next
}

// removeObsoleteMachines removes the machines of nodes that the hive no longer has, and unused images and networks.
func (r *run) removeObsoleteMachines(ctx context.Context, cluster rollout.Cluster) error {
	if !r.machines.AwaitUnused() {
		return nil
	}
	// The engines are asked for their members with every goal, and also if they were asked before: only an
	// engine can report whether a removed node is still a member.
	if err := cluster.RemoveMembers(ctx, r.machines.RemovedNodes(), r.WithoutDrain); err != nil {
		return err
	}
	return r.machines.RemoveObsolete(ctx, r.Record)
}

type MachinePreview struct {
	Action     changes.Action `json:"action"`
	Hypervisor string         `json:"hypervisor"`
	Address    netip.Addr     `json:"address,omitzero"`
	Why        string         `json:"why,omitempty"`
}

// isDown reports whether the machine does not run. a is the action that the machine needs.
func isDown(a changes.Action) bool {
	return slices.Contains([]changes.Action{changes.Create, changes.Finish, changes.Start, changes.Resume}, a)
}

// previewMachines sets what apply would do with machines: r.actions, and in the order of the machine plan, r.removed. facts is a temporary
// file with the facts as they would be after apply, but without host keys that do not exist yet; empty: the evaluator uses its own facts.
// done removes this file; the caller calls it.
func (r *run) previewMachines(ctx context.Context) (facts string, done func(), err error) {
	done = func() {}
	m, recorded := r.Machines, r.Store.State()
	if m == nil || !m.HasMachines(recorded) {
		return "", done, nil
	}
	selected := r.selectMachines()
	if selected != nil && len(selected) == 0 {
		return "", done, nil
	}
	machinePlan, err := r.planMachines(ctx, selected)
	if err != nil {
		return "", done, err
	}
	defer machinePlan.Close()
	r.actions = map[string]*MachinePreview{}
	for _, c := range machinePlan.Changes {
		p := &MachinePreview{Action: c.Action, Hypervisor: c.Hypervisor, Address: c.Address, Why: c.Why}
		if c.Action != changes.Remove {
			r.actions[c.Node] = p
			continue
		}
		r.removed = append(r.removed, Preview{Node: c.Node, Unit: c.Role, Action: plan.WouldRemove, Machine: p})
		r.obsolete = append(r.obsolete, c.Node)
	}
	if !machinePlan.AssignsAddresses() || r.Eval.Facts != "" && r.Eval.Facts != m.Dir.Facts() {
		return "", done, nil
	}
	for _, p := range machinePlan.Places {
		machine := recorded.Machines[p.Node]
		machine.MAC, machine.Address = p.MAC, p.Address
		recorded.Machines[p.Node] = machine
	}
	data, err := m.EncodeFacts(recorded)
	if err != nil || data == nil {
		return "", done, err
	}
	dir, err := os.MkdirTemp("", "nixbench-plan-")
	if err != nil {
		return "", done, err
	}
	facts = filepath.Join(dir, "runtime.json")
	return facts, func() { _ = os.RemoveAll(dir) }, os.WriteFile(facts, data, 0o600)
}

func (d *Deployer) Destroy(ctx context.Context, destroyPlan *machine.DestroyPlan, o Options) ([]state.NodeResult, error) {
	if d.Store.State().Cluster == nil {
		return []state.NodeResult{}, nil
	}
	if d.Engines != nil && (!destroyPlan.WholeCluster || d.hasRemainingMembers(destroyPlan.RemovedNodes())) {
		if err := d.removeDestroyedMembers(ctx, destroyPlan, o); err != nil {
			return nil, err
		}
	}
	return d.Machines.Destroy(ctx, destroyPlan, d.Store, d.Record, o.Parallel)
}

// hasRemainingMembers reports whether a deployed node remains that may be a member, such as one whose machine nixbench does not manage.
func (d *Deployer) hasRemainingMembers(removed []string) bool {
	hive, recorded := d.Machines.Hive, d.Store.State()
	return slices.ContainsFunc(hive.Nodes, func(n nixeval.Node) bool {
		u := hive.Unit(n.Unit)
		member := hive.Broken[n.Unit] != nil || u != nil && u.Deployment.Engine != nil
		return member && recorded.Nodes[n.Name].LastConfirmed != nil && !slices.Contains(removed, n.Name)
	})
}

// removeDestroyedMembers removes the nodes of a destroy plan from their cluster. The engines run commands only on nodes that are
// not destroyed. An engine without such a node is left as it is.
func (d *Deployer) removeDestroyedMembers(ctx context.Context, destroyPlan *machine.DestroyPlan, o Options) error {
	nodes := destroyPlan.RemovedNodes()
	engines, err := d.Engines.Of(d.Machines.Hive, d.Fleet, nodes...)
	if err != nil {
		return err
	}
	if err := rollout.CheckMembersEvaluable(d.Machines.Hive, d.Store); err != nil && !o.WithoutDrain {
		return err
	} else if err != nil {
		d.Send.Warn("machines are removed, and other members may still list their nodes: %v", err)
	}
	return rollout.NewCluster(engines, d.observer(d.Machines.Hive, nil, o.Drain)).RemoveMembers(ctx, nodes, o.WithoutDrain)
}
