package deploy

import (
	"context"
	"errors"
	"slices"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// observeClusterBeforeDeploy observes the running cluster if this run may disturb it. Otherwise it returns a
// cluster with the engines and without members.
func (r *run) observeClusterBeforeDeploy(ctx context.Context, closures map[string]nixeval.Closure, inspected inspections) (rollout.Cluster, error) {
	if r.Engines == nil {
		return rollout.Cluster{}, nil
	}
	if !r.hasDeployedMember(ctx, inspected) || !r.Goal.ActivatesNow() && !r.machines.AnyMachineDeferred() {
		engines, err := r.Engines.Of(r.hive, r.Fleet)
		return rollout.NewCluster(engines, r.Send), err
	}
	r.waitForPreviousRuns(ctx, closures, inspected)
	cluster, err := r.observeCluster(ctx, r.hive, inspected.report, r.Drain)
	for _, name := range cluster.Members() {
		if r.wasRecreated(name, inspected) {
			cluster.MarkRecreated(name)
		}
	}
	return cluster, err
}

// hasDeployedMember reports whether a node that was deployed before this run is a member according to the hive or the
// state. It waits until these nodes have been inspected, so that each of them has a connection or an error.
func (r *run) hasDeployedMember(ctx context.Context, inspected inspections) bool {
	recorded := r.Store.State()
	deployed := false
	for _, n := range r.hive.Nodes {
		u := r.hive.Unit(n.Unit)
		inspection, confirmed := inspected[n.Name], recorded.Nodes[n.Name].LastConfirmed != nil
		if (u == nil || u.Deployment.Engine == nil) && recorded.Nodes[n.Name].Engine == "" {
			continue
		}
		if inspection != nil && (confirmed || r.machines.IsKept(n.Name)) {
			select {
			case <-inspection.done:
			case <-ctx.Done():
			}
		}
		deployed = deployed || confirmed || inspected.isDeployed(n.Name)
	}
	return deployed
}

// report returns what a node has reported in its inspection. It is empty while the inspection is in progress. The state
// lacks a deployment that was made from another computer.
func (l inspections) report(name string) rollout.Report {
	inspection := l[name]
	if inspection == nil {
		return rollout.Report{}
	}
	select {
	case <-inspection.done:
		if inspection.err == nil {
			return newReport(inspection.observed)
		}
	default:
	}
	return rollout.Report{}
}

// isDeployed reports whether the inspection of a node found a deployment.
func (l inspections) isDeployed(name string) bool { return l.report(name).Deployed }

// waitForPreviousRuns waits for activations of killed runs that are still running on members. Such an
// activation may stop the engine, so that the engine does not answer this run.
func (r *run) waitForPreviousRuns(ctx context.Context, closures map[string]nixeval.Closure, inspected inspections) {
	var busy []nixeval.Node
	for _, n := range r.hive.Nodes {
		u, inspection := r.hive.Unit(n.Unit), inspected[n.Name]
		if _, built := closures[n.Unit]; !built || u.Deployment.Engine == nil || inspection == nil {
			continue
		}
		select {
		case <-inspection.done:
			if inspection.err == nil && inspection.observed.Last != nil && inspection.observed.Last.Alive {
				busy = append(busy, n)
			}
		default: // a new node, which has no earlier run
		}
	}
	fleet.Each(ctx, busy, r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
		r.Send.Send(event.Event{Kind: event.Message, Level: "note", Node: n.Name, Text: "waits for an earlier run that is still active on it"})
		h, err := r.Fleet.Host(ctx, n)
		if err == nil {
			_, err = r.Activator.FinishPrevious(ctx, n.Name, h, closures[n.Unit].Out)
		}
		if err == nil { // an error is ignored, because the deployment of the node will report it
			inspected[n.Name].observed, inspected[n.Name].err = r.nodeChanger().Inspect(ctx, n)
		}
		return struct{}{}, nil
	})
}

// deployWaves deploys the waves one after the other, and stops after a wave with a failure.
func (r *run) deployWaves(ctx context.Context, cluster rollout.Cluster, tasks []task) error {
	byName := map[string]task{}
	var nodes []nixeval.Node
	for _, t := range tasks {
		byName[t.Node.Name] = t
		nodes = append(nodes, t.Node)
	}
	waves := cluster.OrderWaves(nodes, func(node string) bool {
		return byName[node].plan.IsNoop() || byName[node].machine == nil && !r.Goal.Activates()
	}, r.MaxUnavailable)
	var joining []nixeval.Node
	var errs []error
	for _, o := range rollout.EachWave(ctx, waves, r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
		defer r.early.enter(n.Name)()
		return struct{}{}, r.deployInCluster(ctx, cluster, byName[n.Name])
	}, func(i int) {
		if i == 0 {
			joining = waves[i]
		}
		later := waves[i+1:]
		if !slices.ContainsFunc(later, cluster.IsOneByOne) || byName[later[0][0].Name].plan.Removes() {
			r.admitPendingNodes(ctx, cluster, joining)
			joining = nil
		}
	}) {
		if rollout.WasSkipped(o.Err) {
			r.recordOutcome(o.Node, byName[o.Node.Name].Closure, state.Skipped, "skipped: a node of an earlier wave failed", nil)
			continue
		}
		r.recordNotStarted(o.Node, o.Err)
		errs = append(errs, o.Err)
	}
	return errors.Join(errs...)
}

// deployInCluster deploys one node. A member is drained before the change. If the node's engine does not answer, the
// node is admitted right after the deployment. If no cluster runs yet, it is admitted while its services are watched,
// so that the creation of the cluster does not wait for that. All other nodes are admitted by admitPendingNodes.
func (r *run) deployInCluster(ctx context.Context, cluster rollout.Cluster, t task) error {
	node := t.Node.Name
	if r.Goal.ActivatesNow() {
		if err := cluster.RemoveStaleMember(ctx, node); err != nil {
			r.recordOutcome(t.Node, t.Closure, state.Failed, "", err)
			return err
		}
	}
	if r.changesNow(t) {
		if err := cluster.RemoveLeaving(ctx, node); err != nil {
			r.recordOutcome(t.Node, t.Closure, state.Failed, "", err)
			return err
		}
	}
	if cluster.IsMember(node) && t.plan.Removes() {
		return r.recreateMember(ctx, cluster, t)
	}
	admitted := false
	if r.Goal.ActivatesNow() && !cluster.Running() {
		t.AfterLogin = func(ctx context.Context) { admitted = cluster.Admit(ctx, node) == nil }
	}
	started := false
	err := cluster.WithDrain(ctx, node, !r.needsDrain(t), func() error {
		started = true
		return r.deployAfterMachineChange(ctx, t)
	})
	if !started {
		r.recordOutcome(t.Node, t.Closure, state.Failed, "", err)
	}
	switch {
	case err != nil || !r.Goal.ActivatesNow() || admitted || cluster.Running() && !cluster.IsUnreachable(node):
	case cluster.Running() && t.plan.IsNoop(): // only a change could have repaired the engine
		r.recordNotJoined(node)
	default:
		r.admitNode(ctx, cluster, node)
	}
	return err
}
