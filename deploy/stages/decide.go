package stages

import (
	"context"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/nixeval"
)

// askVersions asks the engines how the run would change the versions of their software, by node. An engine may refuse a version.
func (r *run) askVersions(ctx context.Context, prepared *preparations) (map[string]engine.Change, error) {
	if !prepared.hasDeployedMember(ctx) || ctx.Err() != nil {
		return nil, nil
	}
	return rollout.VersionChanges(ctx, r.Engines, r.Fleet, r.hive, r.nodes)
}

// observeCluster observes the running cluster if this run may disturb it; otherwise the cluster has engines but no members.
func (r *run) observeCluster(ctx context.Context, prepared *preparations) (rollout.Cluster, error) {
	o := r.observer(r.hive, prepared.observed, r.Drain)
	o.Away = r.Away
	if r.Engines == nil {
		return rollout.NewCluster(nil, o), nil
	}
	if !prepared.hasDeployedMember(ctx) || !r.Goal.ActivatesNow() && !r.machines.AnyMachineDeferred() {
		engines, err := r.Engines.Of(r.hive, r.Fleet)
		return rollout.NewCluster(engines, o), err
	}
	o.Recreated = func(node string) bool { return prepared.wasRecreated(node, r.Store.State()) }
	o.MayStart = !r.preview
	return o.Observe(ctx)
}

// decidePlan waits for the inspections of nodes, and decides what the run does to them, and in which order. removed are the nodes
// whose machines are removed at the end.
func (r *run) decidePlan(ctx context.Context, nodes []nixeval.Node, removed []string, cluster rollout.Cluster, prepared *preparations) plan.Plan {
	var all []plan.Node
	for _, n := range nodes {
		p := prepared.byNode[n.Name]
		<-p.inspected
		c, built := r.systems.closureOf(n.Unit)
		all = append(all, r.decideNode(ctx, n, c, built, p))
	}
	return plan.Decide(all, removed, cluster.Cluster, r.Options.Options)
}

// decideNode decides what the run does to an inspected node, and loads the node's keys, so that an error in a key is found before
// anything is changed on the node. If the node cannot be deployed, the error is in the returned plan.Node.
func (r *run) decideNode(ctx context.Context, n nixeval.Node, c nixeval.Closure, built bool, p *preparation) plan.Node {
	decided := r.observeNode(n, c, built, p)
	if !decided.CanDeploy() {
		return decided
	}
	if decided.Keys && !isDown(decided.Machine) {
		keys, err := r.Uploader.Load(ctx, n.Name, decided.Deployment, secrets.All)
		if err != nil {
			decided.Err = &fleet.NodeError{Node: n.Name, Step: event.Keys, Err: err}
		}
		decided.KeySet = &keys
	}
	return decided
}

// observeNode collects what is known about an inspected node, and decides what the run does to it, without its keys.
func (r *run) observeNode(n nixeval.Node, c nixeval.Closure, built bool, p *preparation) plan.Node {
	o := plan.Observation{
		Task: node.Task{Node: n, Deployment: r.hive.Unit(n.Unit).Deployment, Closure: c, BuildOnTarget: r.systems.buildsOnTarget(n.Unit), Observed: p.observed},
		Err:  p.err, Built: built, Recorded: r.Store.Node(n.Name), Machine: r.machineAction(n.Name),
	}
	if r.Machines != nil {
		var err error
		if o.Deployment, err = r.Machines.NodeDeployment(n, r.Store); err != nil { // adds the keys of nixbench
			return plan.Node{Observation: o, Action: plan.WouldRefuse, Err: &fleet.NodeError{Node: n.Name, Step: event.Keys, Err: err}}
		}
	}
	decided := plan.DecideNode(o, r.Options.Options)
	if decided.Action == plan.WouldRefuse {
		decided.Err = &fleet.NodeError{Node: n.Name, Step: event.Activate, Err: decided.Err}
	}
	return decided
}

// machineAction returns what the run does to the machine of a node, such as create or restart, before it deploys the node.
func (r *run) machineAction(name string) changes.Action {
	if m := r.actions[name]; m != nil {
		return m.Action
	}
	return r.machines.DeferredAction(name)
}
