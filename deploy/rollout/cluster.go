package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Cluster is the observed state of the running cluster: its engines and their members. A member is drained before it changes, and
// only a few members change at the same time. A node that is not a member yet is not drained.
type Cluster struct {
	reporter
	engines      []engine.Engine
	members      map[string]member        // by node name
	desired      map[string]engine.Member // node → member, as the hive describes it
	drainOptions engine.DrainOptions
	kinds        map[engine.Engine]string // the kind of each engine
	store        *state.Store             // the store of the state; nil for a cluster that was not observed
	leaving      []leaving                // engines that nodes run now and that the hive no longer gives them; see drainLeaving
	left         map[string]string        // node → kind of the engine from which drainLeaving has drained it
	removing     map[string]engine.Engine // node → engine from which drainForRemoval has drained it
}

type member struct {
	engine engine.Engine
	plan.Member
}

// NewCluster returns a cluster that has the engines but no members. It is for a run that does not disturb the running cluster.
func NewCluster(engines []engine.Engine, send event.Sink) Cluster {
	return Cluster{
		reporter: reporter{send}, engines: engines, members: map[string]member{}, desired: map[string]engine.Member{},
		kinds: map[engine.Engine]string{}, left: map[string]string{}, removing: map[string]engine.Engine{},
	}
}

// Observer observes the running cluster.
type Observer struct {
	Engines   Engines
	Fleet     *fleet.Fleet
	Hive      *nixeval.Hive
	Store     *state.Store
	Report    func(node string) Report
	Recreated func(node string) bool // whether the machine of a member was recreated; nil: no machine was
	MayStart  bool                   // whether systemd units of an engine that does not answer may be started, on nodes that have reported
	Drain     engine.DrainOptions
	Send      event.Sink
}

// Observe asks the engines of the hive for their members. It does not ask an engine before the first deployment
// of the engine's nodes. If an engine does not answer, its members are all its nodes that were deployed before,
// according to the state or to the node itself. Otherwise an engine that fails for a moment would turn a rolling update
// into a change of all nodes at once.
//
// A node that runs another engine is no member of the hive's engine, even if that engine still lists the node from earlier. The
// engine that the node runs now is asked for its members too, see drainLeaving.
func (o Observer) Observe(ctx context.Context) (Cluster, error) {
	cluster := NewCluster(nil, o.Send)
	cluster.drainOptions, cluster.store = o.Drain, o.Store
	if o.Engines == nil { // nodes without an engine
		return cluster, nil
	}
	recorded, hive, report := o.Store.State(), o.Hive, o.Report
	runs := func(node string) string { return runningEngine(report(node), recorded.Nodes[node]) }
	withMembers, err := o.Engines.makeEngines(hive, o.Fleet, nil)
	if err != nil {
		return cluster, err
	}
	if err := CheckMembersEvaluable(hive, func(node string) bool { return recorded.Nodes[node].LastConfirmed != nil }); err != nil && len(withMembers) > 0 {
		return cluster, err
	}
	for _, t := range withMembers {
		cluster.addEngine(t.kind, t.engine)
		runsOther := func(node string) bool { kind := runs(node); return kind != "" && kind != t.kind }
		deployed := slices.DeleteFunc(slices.Clone(t.members), func(m engine.Member) bool {
			cluster.desired[m.Node] = m
			return recorded.Nodes[m.Node].LastConfirmed == nil && !report(m.Node).Deployed || runsOther(m.Node)
		})
		if len(deployed) == 0 {
			continue
		}
		var start []string
		for _, m := range deployed {
			if o.MayStart && report(m.Node).Deployed {
				start = append(start, m.Node)
			}
		}
		members, err := cluster.askMembers(ctx, t.engine, start)
		switch {
		case ctx.Err() != nil:
			return cluster, context.Cause(ctx)
		case err != nil:
			// If the engine does not answer, no member can be drained. The run continues, because it may repair the engine.
			cluster.warn("", fmt.Errorf("nodes whose member state is unknown are changed one after the other, without a drain: %w", err))
			for _, m := range deployed {
				cluster.members[m.Node] = member{t.engine, plan.Member{Status: engine.Status{OneByOne: m.OneByOne}, Unreachable: true}}
			}
		}
		for node, status := range members {
			leaves := runs(node) == t.kind && inHive(hive, node) && cluster.desired[node].Kind != t.kind
			if !runsOther(node) && !leaves {
				cluster.members[node] = member{t.engine, plan.Member{Status: status, Recreated: o.Recreated != nil && o.Recreated(node)}}
				if status.Reason != "" {
					cluster.warn(node, failure.On(node, fmt.Errorf("it is out of service and stays so: %s", status.Reason)))
				}
			}
		}
	}
	cluster.leaving, err = findLeaving(ctx, o.Engines, o.Fleet, hive, recorded, runs, cluster.reporter)
	return cluster, err
}

// removeStaleMember removes the former member of a node whose machine was recreated, so that the node can join the cluster as a
// new member. For any other node it does nothing.
func (cluster Cluster) removeStaleMember(ctx context.Context, name string) error {
	m := cluster.members[name]
	f, ok := m.engine.(engine.MemberRemover)
	if !m.Recreated || !ok {
		return nil
	}
	if err := f.RemoveMember(ctx, name); err != nil {
		return &fleet.NodeError{Node: name, Step: event.Drain, Err: err}
	}
	return nil
}

// addEngine adds an engine to the cluster, without members. kind is the name of the kind of the engine, such as kubernetes.
func (cluster *Cluster) addEngine(kind string, e engine.Engine) {
	cluster.engines = append(cluster.engines, e)
	cluster.kinds[e] = kind
}

// withDrain calls change, which changes a node. If the node is a member, withDrain drains it before, and uncordons it after
// change, even if change fails. If the drain fails, it does not call change. Without the argument drain, it does not drain a
// member, and uncordons it only if an earlier run has drained it.
func (cluster Cluster) withDrain(ctx context.Context, node string, drain bool, change func() error) error {
	m, isMember := cluster.members[node]
	if m.Unreachable && drain { // the engine may answer by now
		if members, err := m.engine.Members(ctx); err == nil {
			m = member{engine: m.engine}
			m.Status, isMember = members[node]
		}
	}
	isMember = isMember && !m.Recreated && !m.Unreachable
	drains := isMember && drain
	if !drains && (!isMember || !m.Drained) {
		return change()
	}
	return cluster.changeMember(ctx, m, node, drains, change)
}

// changeMember calls change, which changes a member. With the argument drains, it drains the member before. After change it
// uncordons the member in both cases.
func (cluster Cluster) changeMember(ctx context.Context, m member, node string, drains bool, change func() error) error {
	if drains {
		if err := cluster.drainMembers(ctx, m.engine, []string{node}, "", cluster.drainOptions); err != nil {
			return err
		}
	}
	err := change()
	if kind := cluster.kinds[m.engine]; err == nil && cluster.hasLeft(node, kind) {
		return cluster.recordDrained(kind, []string{node}, true)
	}
	uncordonCtx := ctx
	if err != nil {
		// Limit the wait for the member after a failed change. Usually the node has returned to its previous system, and the
		// member is ready at once.
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), UncordonTimeout)
		defer cancel()
		uncordonCtx = limited
	}
	return errors.Join(err, cluster.waitAndUncordon(uncordonCtx, m, node))
}

// hasLeft reports whether a node now runs another engine than the one of this kind, for example after a rollback.
func (cluster Cluster) hasLeft(node, kind string) bool {
	now := cluster.recordedState().Nodes[node].Engine
	return now != "" && kind != "" && now != kind
}

// waitAndUncordon waits until a member is ready, and then uncordons the member.
func (cluster Cluster) waitAndUncordon(ctx context.Context, m member, node string) error {
	return cluster.runMemberStep(ctx, m.engine, node, "is uncordoned once it is ready", func(ctx context.Context) error {
		if err := m.engine.WaitReady(ctx, node, cluster.sendProgress); err != nil {
			return err
		}
		return m.engine.Uncordon(ctx, node)
	})
}

// UncordonTimeout is the maximum time to uncordon a member after a failure.
const UncordonTimeout = 30 * time.Second

// Running reports whether the cluster has members.
func (cluster Cluster) Running() bool { return len(cluster.members) > 0 }

// Observed converts the members of the cluster to the form in which package plan needs them.
func (cluster Cluster) Observed() plan.Cluster {
	out := plan.Cluster{Members: map[string]plan.Member{}, Desired: cluster.desired}
	for node, m := range cluster.members {
		out.Members[node] = m.Member
	}
	return out
}

// IsMember reports whether a node is a member of the cluster. It is also true for a member whose machine was recreated; see
// isCurrentMember.
func (cluster Cluster) IsMember(node string) bool {
	_, isMember := cluster.members[node]
	return isMember
}

// isCurrentMember reports whether a node is a member whose machine was not recreated.
func (cluster Cluster) isCurrentMember(node string) bool {
	return cluster.IsMember(node) && !cluster.members[node].Recreated
}

// IsUnreachable reports whether the engine of a member does not answer.
func (cluster Cluster) IsUnreachable(node string) bool { return cluster.members[node].Unreachable }

// isOneByOne reports whether a wave is a single member that may only be changed one at a time.
func (cluster Cluster) isOneByOne(wave []plan.Node) bool {
	return len(wave) == 1 && cluster.members[wave[0].Node.Name].OneByOne
}
