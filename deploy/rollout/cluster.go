package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Cluster is the observed state of the running cluster: its engines and their members. Members are drained
// before they change, and only a few of them change at the same time. Nodes that are not members yet are not
// drained.
type Cluster struct {
	reporter
	engines      []engine.Engine
	members      map[string]member        // by node name
	desired      map[string]engine.Member // the members according to the hive, by node name
	drainOptions engine.DrainOptions
	kinds        map[engine.Engine]string // the kind of each engine
	store        *state.Store             // nil for a cluster that was not observed
	leaving      []leaving                // the engines that nodes run and leave, see DrainLeaving
	left         map[string]string        // the kinds of the engines of the nodes that DrainLeaving has drained, by node name
	removing     map[string]engine.Engine // the engines of the nodes that DrainForRemoval has drained, by node name
}

type member struct {
	engine engine.Engine
	engine.Status
	// recreated is set if the machine was recreated, so that its disks have no data of the former member.
	recreated bool
	// unreachable is set if the engine does not answer. The membership of the node is then taken from the hive.
	unreachable bool
}

// NewCluster returns a cluster with engines and without members, for a run that does not disturb the running
// cluster.
func NewCluster(engines []engine.Engine, send event.Sink) Cluster {
	return Cluster{
		reporter: reporter{send}, engines: engines, members: map[string]member{}, desired: map[string]engine.Member{},
		kinds: map[engine.Engine]string{}, left: map[string]string{}, removing: map[string]engine.Engine{},
	}
}

// Observe asks the engines of the hive for their members. It does not ask an engine before the first deployment
// of the engine's nodes. If an engine does not answer, its members are all its nodes that were deployed before,
// according to the state or to the node itself. Otherwise an engine that fails for a moment would turn a rolling update
// into a change of all nodes at once.
//
// If mayStart is set, units of an engine that does not answer are started on the nodes that have reported.
//
// A node that runs another engine is no member, even if the engine of the hive lists it: it was a member earlier. The
// engine that it runs is asked, too, see DrainLeaving.
func Observe(ctx context.Context, engines Engines, f *fleet.Fleet, hive *nixeval.Hive, store *state.Store, report func(node string) Report, mayStart bool, o engine.DrainOptions, send event.Sink) (Cluster, error) {
	cluster := NewCluster(nil, send)
	cluster.drainOptions, cluster.store = o, store
	if engines == nil { // nodes without an engine
		return cluster, nil
	}
	recorded := store.State()
	runs := func(node string) string { return runningEngine(report(node), recorded.Nodes[node]) }
	withMembers, err := engines.makeEngines(hive, f, nil)
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
			if mayStart && report(m.Node).Deployed {
				start = append(start, m.Node)
			}
		}
		members, err := cluster.askMembers(ctx, t.engine, start)
		switch {
		case ctx.Err() != nil:
			return cluster, context.Cause(ctx)
		case err != nil:
			// Without an answer no member can be drained. The run continues, because it may repair the engine.
			cluster.warn("", fmt.Errorf("nodes whose member state is unknown are changed one after the other, without a drain: %w", err))
			for _, m := range deployed {
				cluster.members[m.Node] = member{engine: t.engine, Status: engine.Status{OneByOne: m.OneByOne}, unreachable: true}
			}
		}
		for node, status := range members {
			leaves := runs(node) == t.kind && inHive(hive, node) && cluster.desired[node].Kind != t.kind
			if !runsOther(node) && !leaves {
				cluster.AddMember(node, t.engine, status)
				if status.Reason != "" {
					cluster.warn(node, failure.On(node, fmt.Errorf("it is out of service and stays so: %s", status.Reason)))
				}
			}
		}
	}
	cluster.leaving, err = findLeaving(ctx, engines, f, hive, recorded, runs, cluster.reporter)
	return cluster, err
}

// addEngine adds an engine without members.
func (cluster *Cluster) addEngine(kind string, e engine.Engine) {
	cluster.engines = append(cluster.engines, e)
	cluster.kinds[e] = kind
}

// WithDrain calls change for a node. A member is drained before change and uncordoned after it, even if change
// fails. If the member cannot be drained, change is not called.
func (cluster Cluster) WithDrain(ctx context.Context, node string, withoutDrain bool, change func() error) error {
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
	return cluster.changeMember(ctx, m, node, drains, change)
}

// changeMember calls change for a member. If drains is set, it drains the member before. It uncordons the
// member after change in both cases.
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
		// After a failed change the node usually runs its previous system, and is ready at once.
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), UncordonTimeout)
		defer cancel()
		uncordonCtx = limited
	}
	return errors.Join(err, cluster.waitAndUncordon(uncordonCtx, m, node))
}

// hasLeft reports whether a node runs another engine than before its change, such as after a rollback.
func (cluster Cluster) hasLeft(node, kind string) bool {
	now := cluster.recordedState().Nodes[node].Engine
	return now != "" && kind != "" && now != kind
}

// waitAndUncordon waits until a member is ready, and uncordons it.
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

// AddMember adds an observed member.
func (cluster Cluster) AddMember(node string, e engine.Engine, status engine.Status) {
	cluster.members[node] = member{engine: e, Status: status}
}

// Running reports whether the cluster has members.
func (cluster Cluster) Running() bool { return len(cluster.members) > 0 }

// Engines returns the engines of the cluster.
func (cluster Cluster) Engines() []engine.Engine { return cluster.engines }

// Members returns the names of the members.
func (cluster Cluster) Members() []string { return slices.Sorted(maps.Keys(cluster.members)) }

// IsMember reports whether the cluster has a member with the node's name. It does not check whether the member's
// machine was recreated; see IsCurrentMember.
func (cluster Cluster) IsMember(node string) bool {
	_, isMember := cluster.members[node]
	return isMember
}

// IsCurrentMember reports whether a node is a member whose machine was not recreated.
func (cluster Cluster) IsCurrentMember(node string) bool {
	return cluster.IsMember(node) && !cluster.members[node].recreated
}

// IsUnreachable reports whether the engine of a member does not answer.
func (cluster Cluster) IsUnreachable(node string) bool { return cluster.members[node].unreachable }

// MarkRecreated records that a member's machine was recreated, so that its disks have no data of the member.
func (cluster Cluster) MarkRecreated(node string) {
	m := cluster.members[node]
	m.recreated = true
	cluster.members[node] = m
}

// WaitReady waits until a member is ready with its current system. It changes nothing.
func (cluster Cluster) WaitReady(ctx context.Context, node string) error {
	return cluster.members[node].engine.WaitReady(ctx, node, func(_, _ string) {})
}

// AwaitJoin waits until node is ready. The node is about to join the cluster of member.
func (cluster Cluster) AwaitJoin(ctx context.Context, member, node string) error {
	e := cluster.members[member].engine
	return cluster.runMemberStep(ctx, e, node, "is about to join", func(ctx context.Context) error {
		return e.WaitReady(ctx, node, cluster.sendProgress)
	})
}

// UncordonWhenReady waits until a member is ready, and uncordons it.
func (cluster Cluster) UncordonWhenReady(ctx context.Context, node string) error {
	return cluster.waitAndUncordon(ctx, cluster.members[node], node)
}

// RemoveMember drains a member and removes it from the cluster.
func (cluster Cluster) RemoveMember(ctx context.Context, node string, withoutDrain bool) error {
	return RemoveMembers(ctx, []engine.Engine{cluster.members[node].engine}, []string{node}, withoutDrain, cluster.drainOptions, cluster.send)
}
