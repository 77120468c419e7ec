package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Report is what a node has reported about itself in this run.
type Report struct {
	Deployed bool   // nixbench has deployed a system to it
	Engine   string // kind of the engine of the node's running system; empty if the node does not report one
}

// runningEngine returns the kind of the engine that a node runs, or an empty string if it is unknown. What the node itself has
// reported is newer than the state.
func runningEngine(report Report, recorded state.Node) string {
	if report.Engine != "" || recorded.LastConfirmed == nil {
		return report.Engine
	}
	return recorded.Engine
}

// leaving describes the nodes that leave an engine: they run it, and the hive gives them another engine or none.
type leaving struct {
	kind    string
	engine  engine.Engine            // the engine, made of the recorded memberships, because the hive has no settings of it any more
	desired map[string]engine.Member // the recorded memberships of the nodes
	members map[string]engine.Status // the nodes that are registered members
	err     error                    // the error of an engine that does not answer; nil if it does
	remains bool                     // whether other nodes of the hive stay members of the engine
}

// findLeaving returns the engines that nodes of the hive run now, but leave in this run, ordered by kind. It asks each of these
// engines for its members.
func findLeaving(ctx context.Context, makers Engines, f *fleet.Fleet, hive *nixeval.Hive, recorded *state.State, runs func(node string) string, r reporter) ([]leaving, error) {
	nodes := map[string][]string{} // by kind
	stays := map[string]bool{}
	for _, n := range hive.Nodes {
		kind := runs(n.Name)
		if u := hive.Unit(n.Unit); u == nil || hive.Broken[n.Unit] != nil || kind == "" {
			continue
		} else if e := u.Deployment.Engine; e != nil && e.Kind == kind {
			stays[kind] = true
		} else {
			nodes[kind] = append(nodes[kind], n.Name)
		}
	}
	var out []leaving
	for _, kind := range slices.Sorted(maps.Keys(nodes)) {
		l := leaving{kind: kind, remains: stays[kind], desired: map[string]engine.Member{}}
		running := recordedMembers(hive, recorded, kind, runs)
		for _, m := range running {
			if slices.Contains(nodes[kind], m.Node) || !l.remains && !inHive(hive, m.Node) {
				l.desired[m.Node] = m
			}
		}
		for _, node := range nodes[kind] {
			if _, known := l.desired[node]; !known || makers[kind] == nil {
				r.warn(node, failure.On(node, fmt.Errorf("it runs %s and changes without a drain, because the state of this computer does not contain its role there", kind)))
			}
		}
		if len(l.desired) == 0 || makers[kind] == nil {
			continue
		}
		l.engine = makers[kind](engine.Cluster{Name: hive.ClusterName(), Members: running, Run: f.Run})
		all, err := l.engine.Members(ctx)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		l.err, l.members = err, map[string]engine.Status{}
		for node, status := range all {
			if _, leaves := l.desired[node]; leaves {
				l.members[node] = status
			}
		}
		out = append(out, l)
	}
	return out, nil
}

func inHive(hive *nixeval.Hive, node string) bool {
	return slices.ContainsFunc(hive.Nodes, func(n nixeval.Node) bool { return n.Name == node })
}

// recordedMembers returns the nodes that run an engine, with their memberships in the state. Nodes of the hive come before nodes
// that are no longer in the hive.
func recordedMembers(hive *nixeval.Hive, recorded *state.State, kind string, runs func(node string) string) []engine.Member {
	var names []string
	for _, n := range hive.Nodes {
		names = append(names, n.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(recorded.Nodes)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	var out []engine.Member
	for _, name := range names {
		if m, ok := recorded.Nodes[name].Memberships[kind]; ok && runs(name) == kind {
			out = append(out, engine.Member{Node: name, HiveRole: m.HiveRole, Engine: m.Engine(kind)})
		}
	}
	return out
}

// HasLeaving reports whether nodes run an engine that the hive does not name for them any more.
func (cluster Cluster) HasLeaving() bool { return len(cluster.leaving) > 0 }

// WithLeaving returns a copy of the cluster in which also the nodes that leave an engine are members. It is used for a change that
// does not change the system of a node, such as a reboot.
func (cluster Cluster) WithLeaving() Cluster {
	cluster.engines = slices.Clone(cluster.engines)
	for _, l := range cluster.leaving {
		cluster.addEngine(l.kind, l.engine)
		for node, m := range l.desired {
			cluster.desired[node] = m
			if l.err != nil {
				cluster.members[node] = member{l.engine, plan.Member{Status: engine.Status{OneByOne: m.OneByOne}, Unreachable: true}}
			}
		}
		for node, status := range l.members {
			cluster.members[node] = member{l.engine, plan.Member{Status: status}}
		}
	}
	cluster.leaving = nil
	return cluster
}

// drainLeaving drains those of the nodes that leave an engine. It is called before the first node changes, so that no work moves
// to a node that changes later. Each drain is recorded in the state before it begins. If a drain fails, all nodes accept work as
// before.
func (cluster Cluster) drainLeaving(ctx context.Context, nodes []string) error {
	for _, l := range cluster.leaving {
		leave := l.membersAmong(nodes)
		switch {
		case l.err != nil && slices.ContainsFunc(nodes, l.leaves):
			return errors.Join(&LeaveError{Engine: l.kind, Err: l.err}, cluster.UncordonLeaving(ctx))
		case len(leave) == 0:
			continue
		}
		err := cluster.recordDrained(l.kind, leave, true)
		if err == nil {
			err = cluster.drainMembers(ctx, l.engine, leave, "is drained before it leaves "+l.kind, l.drainOptions(leave, cluster.drainOptions))
		}
		if err != nil { // the failed drain has removed its marks
			return errors.Join(err, cluster.recordDrained(l.kind, leave, false), cluster.UncordonLeaving(ctx))
		}
		for _, node := range leave {
			cluster.left[node] = l.kind
		}
	}
	return nil
}

// membersAmong returns those of the nodes that leave the engine and are registered as its members.
func (l leaving) membersAmong(nodes []string) []string {
	return slices.DeleteFunc(slices.Clone(nodes), func(node string) bool { _, isMember := l.members[node]; return !isMember })
}

// drainOptions returns the options to drain the members in leave. If they are all members of the engine and no other node stays in
// it, the whole cluster is drained.
func (l leaving) drainOptions(leave []string, o engine.DrainOptions) engine.DrainOptions {
	o.Whole = !l.remains && len(leave) == len(l.members)
	return o
}

func (l leaving) leaves(node string) bool {
	_, leaves := l.desired[node]
	return leaves
}

// removeLeaving removes a node from the engine that the node leaves, before the node changes. If no node of the hive stays a
// member of this engine, removeLeaving does nothing: the engine's list of members is kept for the case that the nodes go back to
// it.
func (cluster Cluster) removeLeaving(ctx context.Context, node string) error {
	for _, l := range cluster.leaving {
		remover, ok := l.engine.(engine.MemberRemover)
		if _, isMember := l.members[node]; !isMember || !l.remains || !ok {
			continue
		}
		if err := cluster.runMemberStep(ctx, l.engine, node, "is removed from "+l.kind, func(ctx context.Context) error { return remover.RemoveMember(ctx, node) }); err != nil {
			return err
		}
		if err := cluster.recordDrained(l.kind, []string{node}, false); err != nil {
			return err
		}
	}
	return nil
}

// UncordonLeaving uncordons the nodes that drainLeaving has drained, except nodes that run another engine now. It is called after
// a failure. It waits until the nodes are ready, because the system of some nodes may have just been rolled back.
func (cluster Cluster) UncordonLeaving(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), UncordonTimeout)
	defer cancel()
	recorded := cluster.recordedState()
	var errs []error
	for _, l := range cluster.leaving {
		var nodes []string
		for _, node := range slices.Sorted(maps.Keys(cluster.left)) {
			if cluster.left[node] == l.kind && recorded.Nodes[node].Memberships[l.kind].Drained && !cluster.hasLeft(node, l.kind) {
				nodes = append(nodes, node)
			}
		}
		errs = append(errs, cluster.uncordonWhenReady(ctx, l.kind, l.engine, nodes))
	}
	clear(cluster.left)
	return errors.Join(errs...)
}

// uncordonWhenReady waits until members of an engine are ready, uncordons them, and records in the state that they are no longer
// drained.
func (cluster Cluster) uncordonWhenReady(ctx context.Context, kind string, e engine.Engine, nodes []string) error {
	return fleet.ForAll(nodes, func(node string) error {
		err := cluster.waitAndUncordon(ctx, member{engine: e}, node)
		if err == nil {
			err = cluster.recordDrained(kind, []string{node}, false)
		}
		return err
	})
}

// recordDrained records in the state whether nodes are drained because they leave an engine.
func (cluster Cluster) recordDrained(kind string, nodes []string, drained bool) error {
	return cluster.store.Update(func(s *state.State) error {
		for _, node := range nodes {
			s.RecordDrained(node, kind, drained)
		}
		return nil
	})
}

// recordedState returns the state, which is empty for a cluster without a store.
func (cluster Cluster) recordedState() *state.State {
	if cluster.store == nil {
		return &state.State{}
	}
	return cluster.store.State()
}

// UncordonReturned uncordons nodes that were drained when they left an engine, and that run this engine again. It waits until the
// nodes are ready. After a failure the state still contains the drain, so that the next run tries again.
func UncordonReturned(ctx context.Context, makers Engines, f *fleet.Fleet, hive *nixeval.Hive, store *state.Store, nodes []nixeval.Node, send event.Sink) error {
	cluster := NewCluster(nil, send)
	cluster.store = store
	recorded := store.State()
	returned := map[string][]string{} // by kind
	for _, n := range nodes {
		kind := recorded.Nodes[n.Name].Engine
		if recorded.Nodes[n.Name].Memberships[kind].Drained && makers[kind] != nil {
			returned[kind] = append(returned[kind], n.Name)
		}
	}
	var errs []error
	for _, kind := range slices.Sorted(maps.Keys(returned)) {
		members := recordedMembers(hive, recorded, kind, func(node string) string { return recorded.Nodes[node].Engine })
		e := makers[kind](engine.Cluster{Name: hive.ClusterName(), Members: members, Run: f.Run})
		errs = append(errs, cluster.uncordonWhenReady(ctx, kind, e, returned[kind]))
	}
	return errors.Join(errs...)
}

// LeaveError means that nodes cannot be drained before they leave their engine, because the engine does not answer.
type LeaveError struct {
	Engine string // its kind
	Err    error
}

func (e *LeaveError) Error() string {
	return fmt.Sprintf("the nodes that leave %s cannot be drained, and nothing is changed: %v", e.Engine, e.Err)
}

func (e *LeaveError) Unwrap() error { return e.Err }

// Kind implements [failure.Classified].
func (e *LeaveError) Kind() failure.Kind { return failure.Cluster }

// Hint returns a text for the user: how to fix the error.
func (e *LeaveError) Hint() string {
	return "repair it, or use --no-drain: then the work on these nodes ends when they change"
}
