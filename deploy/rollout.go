package deploy

import (
	"context"
	"errors"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// observeClusterBeforeDeploy observes the running cluster if this run may disturb it. Otherwise it returns the
// engines without members.
func (r *run) observeClusterBeforeDeploy(ctx context.Context, closures map[string]nixeval.Closure, inspected inspections) (clusterState, error) {
	if r.Engines == nil {
		return clusterState{}, nil
	}
	if !r.anyMemberDeployed(ctx, inspected) || !r.Goal.activatesNow() && !r.machines.anyMachineDeferred() {
		engines, err := r.Engines.Of(r.hive, r.Fleet)
		return clusterState{engines: engines}, err
	}
	r.waitForPreviousRuns(ctx, closures, inspected)
	cluster, err := r.observeCluster(ctx, r.hive, inspected.isDeployed)
	cluster.drainOptions = r.Drain
	for node, m := range cluster.members {
		m.recreated = r.wasRecreated(node, inspected)
		cluster.members[node] = m
	}
	return cluster, err
}

// anyMemberDeployed reports whether a member of an engine was deployed before. It waits until such nodes have
// been inspected: by then each has a connection or an error.
func (r *run) anyMemberDeployed(ctx context.Context, inspected inspections) bool {
	recorded := r.Store.State()
	deployed := false
	for _, members := range engine.Members(r.hive) {
		for _, m := range members {
			inspection, good := inspected[m.Node], recorded.Nodes[m.Node].LastConfirmed != nil
			if inspection != nil && (good || r.machines.isKept(m.Node)) {
				select {
				case <-inspection.done:
				case <-ctx.Done():
				}
			}
			deployed = deployed || good || inspected.isDeployed(m.Node)
		}
	}
	return deployed
}

// isDeployed reports whether an inspected node has had a deployment, perhaps from another computer. The state
// only has deployments from this one.
func (l inspections) isDeployed(node string) bool {
	inspection := l[node]
	if inspection == nil {
		return false
	}
	select {
	case <-inspection.done:
		return inspection.err == nil && hasDeployment(inspection.observed)
	default:
		return false
	}
}

// hasDeployment reports whether a node has a record of a deployment.
func hasDeployment(n activate.Node) bool { return n.Last != nil || len(n.Deployed) > 0 }

// waitForPreviousRuns waits for activations that killed runs have left running on members. Such an activation
// may stop the engine, so that it does not answer when it is asked for its members, or later in the run.
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
	Each(ctx, busy, r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
		r.Send.Send(event.Event{Kind: event.Message, Level: "note", Node: n.Name, Text: "waits for an earlier run that is still active on it"})
		h, err := r.Fleet.Host(ctx, n)
		if err == nil {
			_, err = r.Activator.FinishPrevious(ctx, n.Name, h, closures[n.Unit].Out)
		}
		if err == nil { // otherwise deploying the node reports the error
			inspected[n.Name].observed, inspected[n.Name].err = r.inspectNode(ctx, n)
		}
		return struct{}{}, nil
	})
}

// activatesNow reports whether the goal activates systems now, and not at the next boot.
func (g Goal) activatesNow() bool { return g == Switch || g == Test }

// deployWaves deploys the waves one after the other, and stops after a wave with a failure.
func (r *run) deployWaves(ctx context.Context, cluster clusterState, tasks []task) error {
	byName := map[string]task{}
	var nodes []nixeval.Node
	for _, t := range tasks {
		byName[t.node.Name] = t
		nodes = append(nodes, t.node)
	}
	waves := cluster.orderWaves(nodes, func(node string) bool {
		return byName[node].noop() || byName[node].machine == nil && !r.Goal.activates()
	}, r.MaxUnavailable)
	var joining []nixeval.Node
	var errs []error
	for _, o := range eachWave(ctx, waves, r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
		return struct{}{}, r.deployInCluster(ctx, cluster, byName[n.Name])
	}, func(i int) {
		if i == 0 {
			joining = waves[i]
		}
		if i+1 == len(waves) || !cluster.isOneByOne(waves[i+1]) || byName[waves[i+1][0].Name].recreatesMachine() {
			r.admitPending(ctx, cluster, joining)
			joining = nil
		}
	}) {
		if wasSkipped(o.Err) {
			r.recordOutcome(o.Node, byName[o.Node.Name].closure, state.Skipped, "skipped: a node of an earlier wave failed", nil)
			continue
		}
		r.recordNotBegun(o.Node, o.Err)
		errs = append(errs, o.Err)
	}
	return errors.Join(errs...)
}

// deployInCluster deploys one node. A member is drained during the change. The node is admitted right after
// it was deployed if no cluster runs yet or its engine does not answer; otherwise admitPending admits it.
func (r *run) deployInCluster(ctx context.Context, cluster clusterState, t task) error {
	node := t.node.Name
	m, isMember := cluster.members[node]
	if m.recreated {
		if err := r.removeStaleMember(ctx, m, node); err != nil {
			r.recordOutcome(t.node, t.closure, state.Failed, "", err)
			return err
		}
	}
	if isMember && t.recreatesMachine() {
		return r.recreateMember(ctx, cluster, m, t)
	}
	started := false
	err := r.withDrain(ctx, cluster, node, !r.needsDrain(t), func() error {
		started = true
		return r.deployAfterMachineChange(ctx, t)
	})
	if !started {
		r.recordOutcome(t.node, t.closure, state.Failed, "", err)
	}
	if err == nil && r.Goal.activatesNow() && (len(cluster.members) == 0 || m.unreachable) {
		r.admit(ctx, cluster, node)
	}
	return err
}

// failedUnitTimeout is how long a unit may be failed at the end of a run. A failed unit rarely recovers.
const failedUnitTimeout = 20 * time.Second

// verifyCluster waits until the conditions of the engines and the additional ones hold. It adjusts existing
// members before it waits, because other nodes may depend on the adjustment, and new members after it, when
// they have joined.
func (r *run) verifyCluster(ctx context.Context, cluster clusterState, nodes []nixeval.Node, more []check.Condition) error {
	if !r.Goal.activatesNow() || len(cluster.engines) == 0 {
		return nil
	}
	var members, newMembers []string
	unreachable := len(cluster.members) == 0
	for _, n := range nodes {
		unreachable = unreachable || cluster.members[n.Name].unreachable
		switch m, isMember := cluster.members[n.Name]; {
		case isMember && !m.recreated && !m.unreachable:
			members = append(members, n.Name)
		case r.hive.Unit(n.Unit).Deployment.Engine != nil:
			newMembers = append(newMembers, n.Name)
		}
	}
	err := r.adjustMembers(ctx, cluster, members)
	switch {
	case r.CheckTimeout == 0 && (err != nil || unreachable): // without a check, an engine that does not answer yet is not waited for
		return err
	case r.CheckTimeout == 0:
		return r.adjustMembers(ctx, cluster, newMembers)
	case err != nil: // the API may be restarting; the check waits for it, or reports what is missing
		newMembers = append(members, newMembers...)
	}
	var conditions []check.Condition
	for _, e := range cluster.engines {
		conditions = append(conditions, e.Conditions(false)...)
	}
	for _, c := range append(MemberConditions(cluster.engines, nodes, r.Parallel), more...) {
		c.Within = failedUnitTimeout
		conditions = append(conditions, c)
	}
	checkCtx, cancel := context.WithTimeout(ctx, r.CheckTimeout)
	defer cancel()
	if _, err := check.Await(checkCtx, conditions, r.Send); err != nil {
		return err
	}
	return r.adjustMembers(ctx, cluster, newMembers)
}
