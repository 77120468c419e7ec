package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// runningEngine returns the kind of the engine that a node runs, or an empty string if it is unknown. What the node itself has
// reported is newer than the state.
func runningEngine(observed activate.Node, recorded state.Node) string {
	if observed.Engine != "" || recorded.LastConfirmed == nil {
		return observed.Engine
	}
	return recorded.Engine
}

// leaving are the nodes that leave an engine: they run it, and the hive gives them another engine or none. Their desired membership
// is the recorded one. If the engine does not answer, all of them are unreachable members.
type leaving struct {
	plan.Cluster
	kind    string
	engine  engine.Engine // made of the recorded memberships, because the hive has no settings of it any more
	err     error         // the error of an engine that does not answer; nil if it does
	remains bool          // whether other nodes of the hive stay members of the engine
}

// findLeaving returns the engines that nodes of the hive run now, but leave in this run, ordered by kind. It asks each of these
// engines for its members. runs returns the kind of the engine that a node runs.
func (o Observer) findLeaving(ctx context.Context, recorded *state.State, runs func(node string) string) ([]leaving, error) {
	nodes := map[string][]string{} // by kind
	stays := map[string]bool{}
	for _, n := range o.Hive.Nodes {
		kind := runs(n.Name)
		if u := o.Hive.Unit(n.Unit); u == nil || o.Hive.Broken[n.Unit] != nil || kind == "" {
			continue
		} else if e := u.Deployment.Engine; e != nil && e.Kind == kind {
			stays[kind] = true
		} else {
			nodes[kind] = append(nodes[kind], n.Name)
		}
	}
	var out []leaving
	for _, kind := range slices.Sorted(maps.Keys(nodes)) {
		l := leaving{kind: kind, remains: stays[kind], Cluster: plan.Cluster{Members: map[string]plan.Member{}, Desired: map[string]engine.Member{}}}
		running := recordedMembers(o.Hive, recorded, kind, runs)
		for _, m := range running {
			if slices.Contains(nodes[kind], m.Node) || !l.remains && !inHive(o.Hive, m.Node) {
				l.Desired[m.Node] = m
			}
		}
		for _, node := range nodes[kind] {
			if _, known := l.Desired[node]; !known || o.Engines[kind] == nil {
				o.Send.WarnOn(node, "%s: it runs %s and changes without a drain, because the state of this computer does not contain its role there", node, kind)
			}
		}
		if len(l.Desired) == 0 || o.Engines[kind] == nil {
			continue
		}
		l.engine = o.Engines[kind](engine.Cluster{Name: o.Hive.ClusterName(), Members: running, Run: o.Fleet.Run})
		var all map[string]engine.Status
		if all, l.err = l.engine.Members(ctx); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		for node, m := range l.Desired {
			if status, isMember := all[node]; isMember {
				l.Members[node] = plan.Member{Engine: l.engine, Kind: kind, Status: status}
			} else if l.err != nil {
				l.Members[node] = newUnreachable(l.engine, m)
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
	names := selection.Names(hive.Nodes)
	for _, name := range nixeval.SortedNames(recorded.Nodes) {
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

func (cluster Cluster) HasLeaving() bool { return len(cluster.leaving) > 0 }

// WithLeaving returns a copy of the cluster in which also the nodes that leave an engine are members. It is used for a change that
// does not change the system of a node, such as a reboot.
func (cluster Cluster) WithLeaving() Cluster {
	cluster.engines = slices.Clone(cluster.engines)
	for _, l := range cluster.leaving {
		cluster.engines = append(cluster.engines, l.engine)
		maps.Copy(cluster.Desired, l.Desired)
		maps.Copy(cluster.Members, l.Members)
	}
	cluster.leaving = nil
	return cluster
}

// drainLeaving drains those of the nodes that leave an engine. It is called before the first node changes, so that no work moves
// to a node that changes later. Each drain is recorded in the state before it begins.
func (cluster Cluster) drainLeaving(ctx context.Context, nodes []string) error {
	for _, l := range cluster.leaving {
		leave := among(nodes, l.Members)
		switch {
		case len(leave) == 0:
			continue
		case l.err != nil:
			err := fmt.Errorf("the nodes that leave %s cannot be drained, and nothing is changed: %w", l.kind, l.err)
			return failure.WithHint(failure.WithKind(failure.Cluster, err), "repair it, or use --no-drain: then the work on these nodes ends when they change")
		}
		err := cluster.recordDrained(l.kind, leave, true)
		if err == nil {
			err = cluster.drainMembers(ctx, l.engine, leave, "is drained before it leaves "+l.kind, l.drainOptions(leave, cluster.observer.Drain))
		}
		if err != nil { // the failed drain has removed its marks
			return errors.Join(err, cluster.recordDrained(l.kind, leave, false))
		}
		for _, node := range leave {
			cluster.drained[node] = l.Members[node]
		}
	}
	return nil
}

// drainOptions returns the options to drain the members in leave. If they are all members of the engine and no other node stays in
// it, the whole cluster is drained.
func (l leaving) drainOptions(leave []string, o engine.DrainOptions) engine.DrainOptions {
	o.Whole = !l.remains && len(leave) == len(l.Members)
	return o
}

// removeLeaving removes a node from the engine that the node leaves, before the node changes. If no node of the hive stays a member of
// this engine, removeLeaving does nothing: the engine's list of members is kept for the case that the nodes go back to it.
func (cluster Cluster) removeLeaving(ctx context.Context, node string) error {
	for _, l := range cluster.leaving {
		if m, isMember := l.Members[node]; !isMember || m.Unreachable || !l.remains {
			continue
		}
		err := cluster.runStep(ctx, l.engine, []string{node}, "is removed from "+l.kind, func(ctx context.Context) error { return l.engine.RemoveMember(ctx, node) })
		if err == nil {
			err = cluster.recordDrained(l.kind, []string{node}, false)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// UncordonDrained uncordons the nodes that were drained before the first change, and that are still members. It is called after a
// failure. It waits until a node that should have left its engine is ready, because its system may have just been rolled back. A
// node that runs another engine now is not uncordoned.
func (cluster Cluster) UncordonDrained(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), uncordonTimeout)
	defer cancel()
	err := fleet.ForAll(nixeval.SortedNames(cluster.drained), func(node string) error {
		m := cluster.drained[node]
		switch {
		case m.Kind == "":
			return fleet.NewNodeError(node, event.Drain, m.Engine.Uncordon(ctx, node))
		case !cluster.observer.Store.Node(node).Memberships[m.Kind].Drained || cluster.hasLeft(node, m.Kind):
			return nil
		}
		return cluster.uncordonLeft(ctx, m.Kind, m.Engine, node)
	})
	clear(cluster.drained)
	return err
}

func (cluster Cluster) uncordonLeft(ctx context.Context, kind string, e engine.Engine, node string) error {
	err := cluster.waitAndUncordon(ctx, e, node)
	if err == nil {
		err = cluster.recordDrained(kind, []string{node}, false)
	}
	return err
}

// recordDrained records in the state whether nodes are drained because they leave an engine.
func (cluster Cluster) recordDrained(kind string, nodes []string, drained bool) error {
	return cluster.observer.Store.Update(func(s *state.State) error {
		for _, node := range nodes {
			s.RecordDrained(node, kind, drained)
		}
		return nil
	})
}

// UncordonReturned uncordons nodes that were drained when they left an engine, and that run this engine again. It waits until the
// nodes are ready. After a failure the state still contains the drain, so that the next run tries again.
func (cluster Cluster) UncordonReturned(ctx context.Context, nodes []nixeval.Node) error {
	o := cluster.observer
	if ctx.Err() != nil {
		return nil
	}
	recorded := o.Store.State()
	runs := func(node string) string { return recorded.Nodes[node].Engine }
	engines := map[string]engine.Engine{}
	var returned []string
	for _, n := range nodes {
		kind := runs(n.Name)
		if !recorded.Nodes[n.Name].Memberships[kind].Drained || o.Engines[kind] == nil {
			continue
		}
		returned = append(returned, n.Name)
		if engines[kind] == nil {
			engines[kind] = o.Engines[kind](engine.Cluster{Name: o.Hive.ClusterName(), Members: recordedMembers(o.Hive, recorded, kind, runs), Run: o.Fleet.Run})
		}
	}
	return fleet.ForAll(returned, func(node string) error {
		return cluster.uncordonLeft(ctx, runs(node), engines[runs(node)], node)
	})
}
