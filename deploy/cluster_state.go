package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// clusterState is the observed state of the running cluster: its engines and their members. Members are
// drained before they change, and only a few of them change at the same time. Nodes that are not members yet
// do not have to be drained.
type clusterState struct {
	engines      []engine.Engine
	members      map[string]member
	desired      map[string]bool // nodes that the hive has as members
	drainOptions engine.DrainOptions
}

type member struct {
	engine engine.Engine
	engine.Status
	// recreated: the machine was recreated and has nothing of the former member on its disks.
	recreated bool
	// unreachable: the engine does not answer. The membership of this node is taken from the hive.
	unreachable bool
}

// observeCluster asks the engines of the hive for their members. Before the first deployment no engine is
// asked. Where an engine does not answer, all nodes that were deployed before count as its members, also nodes
// that report a deployment which the state does not have. Without this, an engine that does not answer for a
// moment would turn a rolling update into a change of all nodes at once.
func (d *Deployer) observeCluster(ctx context.Context, hive *nixeval.Hive, reportsDeployed func(node string) bool) (clusterState, error) {
	cluster := clusterState{members: map[string]member{}, desired: map[string]bool{}}
	if d.Engines == nil { // nodes without an engine
		return cluster, nil
	}
	withMembers, err := d.Engines.withMembers(hive, d.Fleet, nil)
	if err != nil {
		return cluster, err
	}
	recorded := d.Store.State()
	if err := d.checkMembersEvaluable(hive); err != nil && len(withMembers) > 0 {
		return cluster, err
	}
	for _, t := range withMembers {
		cluster.engines = append(cluster.engines, t.engine)
		deployed := slices.DeleteFunc(slices.Clone(t.members), func(m engine.Member) bool {
			cluster.desired[m.Node] = true
			return recorded.Nodes[m.Node].LastConfirmed == nil && !reportsDeployed(m.Node)
		})
		if len(deployed) == 0 {
			continue
		}
		members, err := t.engine.Members(ctx)
		switch {
		case ctx.Err() != nil:
			return cluster, context.Cause(ctx)
		case err != nil:
			// Without an answer no member can be drained. The run goes on, because it may be what repairs the
			// engine.
			d.warn("", fmt.Errorf("nodes whose member state is unknown are changed one after the other, without a drain: %w", err))
			for _, m := range deployed {
				cluster.members[m.Node] = member{engine: t.engine, Status: engine.Status{OneByOne: m.OneByOne}, unreachable: true}
			}
		}
		for node, status := range members {
			cluster.members[node] = member{engine: t.engine, Status: status}
		}
	}
	return cluster, nil
}

// orderWaves splits nodes into waves, which change one after the other. No-op nodes go into the first wave
// because they restart nothing. In a running cluster, nodes that are about to join also go into the first
// wave, and nodes without an engine if share is all. The next waves have one member each that may only be
// changed one at a time. The last waves have the other nodes, share of them per wave.
func (cluster clusterState) orderWaves(nodes []nixeval.Node, isNoop func(node string) bool, share plan.Share) [][]nixeval.Node {
	running := len(cluster.members) > 0
	var first, single, others []nixeval.Node
	for _, n := range nodes {
		m, isMember := cluster.members[n.Name]
		switch {
		case isNoop(n.Name), running && cluster.desired[n.Name] && (!isMember || m.recreated), running && !isMember && share.All():
			first = append(first, n)
		case isMember && m.OneByOne:
			single = append(single, n)
		default:
			others = append(others, n)
		}
	}
	if share.All() && running {
		share = plan.One
	}
	var out [][]nixeval.Node
	for _, n := range single {
		out = append(out, []nixeval.Node{n})
	}
	out = append(out, plan.Waves(others, share)...)
	if len(out) == 0 || running {
		return append([][]nixeval.Node{first}, out...)
	}
	out[0] = append(first, out[0]...)
	return out
}

// isOneByOne reports whether a wave is a single member that may only be changed one at a time.
func (cluster clusterState) isOneByOne(wave []nixeval.Node) bool {
	return len(wave) == 1 && cluster.members[wave[0].Name].OneByOne
}

// withDrain changes a node of a running cluster. A member is drained before the change and uncordoned after
// it, also if the change fails. If the member cannot be drained, change is not called.
func (d *Deployer) withDrain(ctx context.Context, cluster clusterState, node string, withoutDrain bool, change func() error) error {
	m, isMember := cluster.members[node]
	if m.unreachable && !withoutDrain { // the engine may answer by now
		if members, err := m.engine.Members(ctx); err == nil {
			m = member{engine: m.engine}
			m.Status, isMember = members[node]
		}
	}
	isMember = isMember && !m.recreated && !m.unreachable
	drains := isMember && !withoutDrain
	if !drains && (!isMember || !m.Drained) {
		return change()
	}
	return d.drainAround(ctx, cluster.drainOptions, m, node, drains, change)
}

// drainAround calls change for a member. It drains the member before if drains is set, and uncordons it after
// in any case.
func (d *Deployer) drainAround(ctx context.Context, o engine.DrainOptions, m member, node string, drains bool, change func() error) error {
	if drains {
		if err := d.drainNode(ctx, m.engine, node, "", o); err != nil {
			return err
		}
	}
	err := change()
	uncordonCtx := ctx
	if err != nil {
		// After a failed change the node mostly runs its previous system and is ready at once.
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), uncordonTimeout)
		defer cancel()
		uncordonCtx = limited
	}
	return errors.Join(err, d.uncordonWhenReady(uncordonCtx, m, node))
}

// uncordonWhenReady waits until a member is ready, and uncordons it.
func (d *Deployer) uncordonWhenReady(ctx context.Context, m member, node string) error {
	return d.runMemberStep(node, "uncordoned", func(report func(string)) error { return m.engine.UncordonWhenReady(ctx, node, report) })
}

// uncordonTimeout limits uncordoning after a failure.
const uncordonTimeout = 30 * time.Second

// rollingUpdate changes nodes wave by wave, drains members, and reports the result of each node.
func (d *Deployer) rollingUpdate(ctx context.Context, nodes []nixeval.Node, reportsDeployed func(node string) bool, withoutDrain bool, o engine.DrainOptions, share plan.Share, parallel int,
	change func(context.Context, nixeval.Node) (state.NodeResult, string, error)) ([]state.NodeResult, error) {
	var results []state.NodeResult
	skip := func(n nixeval.Node, err error) {
		results = append(results, d.reportResult(state.NodeResult{Node: n.Name, Unit: n.Unit, Outcome: state.Skipped}, "", err))
	}
	cluster, err := d.observeCluster(ctx, d.Fleet.hive, reportsDeployed)
	cluster.drainOptions = o
	if err == nil && !withoutDrain {
		err = d.checkDrains(ctx, cluster, nodeNames(nodes), nil)
	}
	if err != nil {
		for _, n := range nodes {
			skip(n, err)
		}
		return results, err
	}
	waves := cluster.orderWaves(nodes, func(string) bool { return false }, share)
	var errs []error
	for _, o := range eachWave(ctx, waves, parallel, func(ctx context.Context, n nixeval.Node) (state.NodeResult, error) {
		r := state.NodeResult{Node: n.Name, Unit: n.Unit, Outcome: state.Failed}
		text := ""
		err := d.withDrain(ctx, cluster, n.Name, withoutDrain, func() (err error) {
			r, text, err = change(ctx, n)
			return err
		})
		return d.reportResult(r, text, err), err
	}, func(int) {}) {
		if o.Value.Node == "" { // the change of this node was not started
			skip(o.Node, o.Err)
		} else {
			results = append(results, o.Value)
		}
		errs = append(errs, o.Err)
	}
	return results, errors.Join(errs...)
}
