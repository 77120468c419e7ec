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

// cluster is what lives, where this run may disturb it.
func (r *run) observeClusterBeforeDeploy(ctx context.Context, closures map[string]nixeval.Closure, inspected looks) (clusterState, error) {
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

// anyDeployed tells whether a node of an engine was deployed before, and waits until such
// nodes have been looked at: a connection is there then, or is known not to come.
func (r *run) anyMemberDeployed(ctx context.Context, inspected looks) bool {
	recorded := r.Store.State()
	deployed := false
	for _, members := range engine.Members(r.hive) {
		for _, m := range members {
			inspection, good := inspected[m.Node], recorded.Nodes[m.Node].Good != nil
			if inspection != nil && (good || r.machines.kept(m.Node)) {
				select {
				case <-inspection.over:
				case <-ctx.Done():
				}
			}
			deployed = deployed || good || inspected.isDeployed(m.Node)
		}
	}
	return deployed
}

// deployed tells whether a node that has been looked at says that it was deployed, perhaps from
// elsewhere: what we remember is what was done from here.
func (l looks) isDeployed(node string) bool {
	inspection := l[node]
	if inspection == nil {
		return false
	}
	select {
	case <-inspection.over:
		return inspection.err == nil && hasDeployment(inspection.found)
	default:
		return false
	}
}

func hasDeployment(n activate.Node) bool { return n.Last != nil || len(n.Deployed) > 0 }

// outlast waits for what killed runs have left going on members. It may be what takes away
// what the nodes run together, which then cannot be asked, or is gone before it is asked again.
func (r *run) waitForPreviousRuns(ctx context.Context, closures map[string]nixeval.Closure, inspected looks) {
	var busy []nixeval.Node
	for _, n := range r.hive.Nodes {
		u, inspection := r.hive.Unit(n.Unit), inspected[n.Name]
		if _, built := closures[n.Unit]; !built || u.Deployment.Engine == nil || inspection == nil {
			continue
		}
		select {
		case <-inspection.over:
			if inspection.err == nil && inspection.found.Last != nil && inspection.found.Last.Alive {
				busy = append(busy, n)
			}
		default: // it is new, and nobody waits for it
		}
	}
	Each(ctx, busy, r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
		r.Send.Send(event.Event{Kind: event.Message, Level: "note", Node: n.Name, Text: "an earlier run goes on there, and is waited for"})
		h, err := r.Fleet.Host(ctx, n)
		if err == nil {
			_, err = r.Activator.Settle(ctx, n.Name, h, closures[n.Unit].Out)
		}
		if err == nil { // else deploying the node says why
			inspected[n.Name].found, inspected[n.Name].err = r.lookAt(ctx, n)
		}
		return struct{}{}, nil
	})
}

// runs tells whether systems are run now.
func (g Goal) activatesNow() bool { return g == Switch || g == Test }

// waves deploys a wave after the other, and stops after one with a failure.
func (r *run) deployWaves(ctx context.Context, cluster clusterState, todo []task) error {
	byName := map[string]task{}
	var nodes []nixeval.Node
	for _, t := range todo {
		byName[t.node.Name] = t
		nodes = append(nodes, t.node)
	}
	steps := cluster.orderWaves(nodes, func(node string) bool {
		return byName[node].calm() || byName[node].machine == nil && !r.Goal.activates()
	}, r.MaxUnavailable)
	var joining []nixeval.Node
	var errs []error
	for _, o := range inWaves(ctx, steps, r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
		return struct{}{}, r.deployInCluster(ctx, cluster, byName[n.Name])
	}, func(i int) {
		if i == 0 {
			joining = steps[i]
		}
		if i+1 == len(steps) || !cluster.isOneByOne(steps[i+1]) || byName[steps[i+1][0].Name].recreatesMachine() {
			r.admitPending(ctx, cluster, joining)
			joining = nil
		}
	}) {
		if left(o.Err) {
			r.done(o.Node, byName[o.Node.Name].closure, state.Skipped, "skipped: a node of the wave before failed", nil)
			continue
		}
		r.notBegun(o.Node, o.Err)
		errs = append(errs, o.Err)
	}
	return errors.Join(errs...)
}

// roll deploys one node amid what lives. A node that comes in is invited, at once where
// nothing lives yet.
func (r *run) deployInCluster(ctx context.Context, cluster clusterState, t task) error {
	node := t.node.Name
	m, isMember := cluster.members[node]
	if m.recreated {
		if err := r.removeStaleMember(ctx, m, node); err != nil {
			r.done(t.node, t.closure, state.Failed, "", err)
			return err
		}
	}
	if isMember && t.recreatesMachine() {
		return r.recreateMember(ctx, cluster, m, t)
	}
	begun := false
	err := r.withDrain(ctx, cluster, node, !r.needsDrain(t), func() error {
		begun = true
		return r.deployAfterMachineChange(ctx, t)
	})
	if !begun {
		r.done(t.node, t.closure, state.Failed, "", err)
	}
	if err == nil && r.Goal.activatesNow() && (len(cluster.members) == 0 || m.unreachable) {
		r.admit(ctx, cluster, node)
	}
	return err
}

// failedTimeout is how long a unit may be failed at the end of a run. A failed unit hardly ever recovers.
const failedUnitTimeout = 20 * time.Second

// proven waits until what the nodes run together is as the hive has it, and then until more
// conditions hold. Members are adjusted before, since they may be what others wait for; new ones once
// they are there.
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
	case r.CheckTimeout == 0 && (err != nil || unreachable): // who cannot answer yet is not waited for
		return err
	case r.CheckTimeout == 0:
		return r.adjustMembers(ctx, cluster, newMembers)
	case err != nil: // it may just restart; the check waits for it, or says why it does not come
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
	waiting, cancel := context.WithTimeout(ctx, r.CheckTimeout)
	defer cancel()
	if _, err := check.Await(waiting, conditions, r.Send); err != nil {
		return err
	}
	return r.adjustMembers(ctx, cluster, newMembers)
}
