package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Cluster is the observed state of the running cluster: its engines and their members. A member is drained before it changes, and
// only a few members change at the same time. A node that is not a member yet is not drained.
type Cluster struct {
	plan.Cluster
	reporter
	observer Observer
	engines  []engine.Engine
	leaving  []leaving // engines that nodes run now and that the hive no longer gives them; see drainLeaving
	Unknown  error     // why an engine does not answer, so that its members are those of the hive; nil: all engines answer
	// drained has the nodes that were drained before the first node changed, because they leave their engine or are removed. The
	// field Kind of a member is empty if the node is removed.
	drained map[string]plan.Member
}

// NewCluster returns a cluster that has the engines but no members. It is for a run that does not disturb the running cluster.
func NewCluster(engines []engine.Engine, o Observer) Cluster {
	return Cluster{
		Cluster:  plan.Cluster{Members: map[string]plan.Member{}, Desired: map[string]engine.Member{}},
		reporter: reporter{o.Send}, observer: o, engines: engines, drained: map[string]plan.Member{},
	}
}

type Observer struct {
	Engines   Engines
	Fleet     *fleet.Fleet
	Hive      *nixeval.Hive
	Store     *state.Store
	Observed  func(node string) activate.Node // the node as this run has inspected it; empty if it was not inspected
	Recreated func(node string) bool          // whether the machine of a member was recreated; nil: no machine was
	MayStart  bool                            // whether systemd units of an engine that does not answer may be started, on nodes that have reported
	Drain     engine.DrainOptions
	Away      []string // nodes that may be away and are
	Send      event.Sink
}

// Observe asks the engines of the hive for their members. It does not ask an engine before the first deployment of the engine's nodes.
// If an engine does not answer, its members are all its nodes that were deployed before, according to the state or to the node itself.
// Otherwise an engine that fails for a moment would turn a rolling update into a change of all nodes at once.
//
// A node that runs another engine is no member of the hive's engine, even if that engine still lists the node from earlier. The
// engine that the node runs now is asked for its members too, see drainLeaving.
func (o Observer) Observe(ctx context.Context) (Cluster, error) {
	cluster := NewCluster(nil, o)
	if o.Engines == nil { // nodes without an engine
		return cluster, nil
	}
	recorded := o.Store.State()
	engines, err := o.Engines.Of(o.Hive, o.Fleet)
	if err != nil {
		return cluster, err
	}
	if err := CheckMembersEvaluable(o.Hive, o.Store); err != nil && len(engines) > 0 {
		return cluster, err
	}
	cluster.engines = engines
	all := engine.MembersByKind(o.Hive)
	runs := func(node string) string { return runningEngine(o.Observed(node), recorded.Nodes[node]) }
	for i, kind := range slices.Sorted(maps.Keys(all)) {
		e := engines[i]
		runsOther := func(node string) bool { other := runs(node); return other != "" && other != kind }
		var deployed, start []string
		for _, m := range all[kind] {
			cluster.Desired[m.Node] = m
			reported := node.HasDeployment(o.Observed(m.Node))
			if recorded.Nodes[m.Node].LastConfirmed == nil && !reported || runsOther(m.Node) {
				continue
			}
			deployed = append(deployed, m.Node)
			if o.MayStart && reported {
				start = append(start, m.Node)
			}
		}
		if len(deployed) == 0 {
			continue
		}
		members, err := cluster.askMembers(ctx, e, start)
		switch {
		case ctx.Err() != nil:
			return cluster, context.Cause(ctx)
		case err != nil:
			// If the engine does not answer, no member can be drained. The run continues, because it may repair the engine.
			cluster.Unknown = errors.Join(cluster.Unknown, inspect.NewUnknownError(err, ""))
			o.Send.Warn("nodes whose member state is unknown are changed one after the other, without a drain: %v", err)
			for _, node := range deployed {
				cluster.Members[node] = newUnreachable(e, cluster.Desired[node])
			}
		}
		for node, status := range members {
			leaves := runs(node) == kind && inHive(o.Hive, node) && cluster.Desired[node].Kind != kind
			if runsOther(node) || leaves {
				continue
			}
			cluster.Members[node] = plan.Member{Engine: e, Kind: kind, Status: status, Recreated: o.Recreated != nil && o.Recreated(node)}
			if status.Reason != "" {
				o.Send.WarnOn(node, "%s: it is out of service and stays so: %s", node, status.Reason)
			}
		}
	}
	cluster.leaving, err = o.findLeaving(ctx, recorded, runs)
	return cluster, err
}

// newUnreachable returns the member of an engine that does not answer.
func newUnreachable(e engine.Engine, m engine.Member) plan.Member {
	return plan.Member{Engine: e, Kind: m.Kind, Status: engine.Status{OneByOne: m.OneByOne}, Unreachable: true}
}

// withDrain calls change, which changes a node. If the node is a member, withDrain drains it before, and uncordons it after
// change, even if change fails. If the drain fails, it does not call change. Without the argument drain, it does not drain a
// member, and uncordons it only if an earlier run has drained it.
func (cluster Cluster) withDrain(ctx context.Context, node string, drain bool, change func() error) error {
	m := cluster.Members[node]
	if m.Unreachable && drain { // the engine may answer by now
		if members, err := m.Engine.Members(ctx); err == nil {
			status, isMember := members[node]
			m = plan.Member{Engine: m.Engine, Kind: m.Kind, Status: status, Unreachable: !isMember}
		}
	}
	switch {
	case m.Engine == nil, m.Recreated, m.Unreachable, !drain && !m.Drained:
		return change()
	case drain:
		if err := cluster.drainMembers(ctx, m.Engine, []string{node}, "", cluster.observer.Drain); err != nil {
			return err
		}
	}
	err := change()
	if err == nil && cluster.hasLeft(node, m.Kind) {
		return cluster.recordDrained(m.Kind, []string{node}, true)
	}
	if err != nil {
		// Limit the wait for the member after a failed change. Usually the node has returned to its previous system, and the
		// member is ready at once.
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), uncordonTimeout)
		defer cancel()
		ctx = limited
	}
	return errors.Join(err, cluster.waitAndUncordon(ctx, m.Engine, node))
}

func (cluster Cluster) hasLeft(node, kind string) bool {
	now := cluster.observer.Store.Node(node).Engine
	return now != "" && kind != "" && now != kind
}

// uncordonTimeout is the maximum time to uncordon a member after a failure.
const uncordonTimeout = 30 * time.Second

func (r reporter) waitAndUncordon(ctx context.Context, e engine.Engine, node string) error {
	return r.runStep(ctx, e, []string{node}, "is uncordoned once it is ready", func(ctx context.Context) error {
		if err := e.WaitReady(ctx, node, r.sendProgress); err != nil {
			return err
		}
		return e.Uncordon(ctx, node)
	})
}

// reporter sends events about what a run does with members of a cluster, such as a drain.
type reporter struct{ send event.Sink }

// sendProgress sends an event with the progress of a drain, or of a wait for a member of the cluster.
func (r reporter) sendProgress(node, text string) {
	r.send.Send(event.Event{Kind: event.NodeProgress, Phase: event.Drain, Node: node, Text: text})
}

// runStep calls step, which drains members, waits for them, uncordons or removes them, and sends events for the start and the end.
func (r reporter) runStep(ctx context.Context, e engine.Engine, nodes []string, text string, step func(context.Context) error) error {
	for _, node := range nodes {
		r.send.Send(event.Event{Kind: event.NodeStart, Phase: event.Drain, Node: node, Text: text})
	}
	err := r.watch(ctx, e, nodes, step)
	for _, node := range nodes {
		r.send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Drain, Node: node, Failed: err != nil})
	}
	failed := nodes[0]
	var one *engine.DrainError
	if errors.As(err, &one) {
		failed = one.Node
	}
	return fleet.NewNodeError(failed, event.Drain, err)
}

// watch calls step, which waits for members. If the wait takes long, watch inspects the nodes of these members, and sends an event
// about what does not work there. It also adds this text to the error of step.
func (r reporter) watch(ctx context.Context, e engine.Engine, nodes []string, step func(context.Context) error) error {
	seen, err := engine.LookAt(e, nodes...).While(ctx, func(text string) { r.sendProgress(nodes[0], "waits: "+text) }, step)
	if err != nil && seen != "" && ctx.Err() == nil {
		return fmt.Errorf("%w\n%s", err, seen)
	}
	return err
}

// among returns those of the nodes that are keys of a map, such as members by node.
func among[T any](nodes []string, m map[string]T) []string {
	return slices.DeleteFunc(slices.Clone(nodes), func(node string) bool { _, found := m[node]; return !found })
}

// NewClusterUnavailableError returns the error that no node can be removed from a cluster, because its engine does not answer.
func NewClusterUnavailableError(err error) error {
	return failure.WithHint(failure.WithKind(failure.Cluster, fmt.Errorf("no node can be removed from the cluster: %w", err)),
		"--no-drain removes the machines without this step; the other members still list them")
}

// Engines maps the name of each kind of engine, such as kubernetes, to its constructor.
type Engines map[string]func(engine.Cluster) engine.Engine

// Of returns the engines of the hive, ordered by kind. They can run commands on their members, but not on those that the argument
// without names, because these nodes are about to be removed.
func (makers Engines) Of(hive *nixeval.Hive, f *fleet.Fleet, without ...string) ([]engine.Engine, error) {
	var out []engine.Engine
	all := engine.MembersByKind(hive)
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		members := all[kind]
		newEngine := makers[kind]
		if newEngine == nil {
			return nil, fmt.Errorf("%s.deployment.engine.kind: this version of nixbench has no engine %q", members[0].Node, kind)
		}
		members = slices.DeleteFunc(members, func(m engine.Member) bool { return slices.Contains(without, m.Node) })
		out = append(out, newEngine(engine.Cluster{Name: hive.ClusterName(), Members: members, Run: f.Run}))
	}
	return out, nil
}

// VersionChanges returns how a deployment of these nodes would change the version of their engine, by node. An engine may refuse it.
func VersionChanges(ctx context.Context, makers Engines, f *fleet.Fleet, hive *nixeval.Hive, nodes []nixeval.Node) (map[string]engine.Change, error) {
	if makers == nil { // nodes without an engine
		return nil, nil
	}
	engines, err := makers.Of(hive, f)
	if err != nil {
		return nil, err
	}
	names := selection.Names(nodes)
	all := map[string]engine.Change{}
	var errs []error
	for _, e := range engines {
		_, err := engine.LookAt(e).While(ctx, func(text string) { f.EventSink().Warn("%s", text) }, func(ctx context.Context) error {
			changes, err := e.Versions(ctx, names)
			maps.Copy(all, changes)
			return err
		})
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// CheckMembersEvaluable returns an error if a node that was deployed before can no longer be evaluated, so that its engine is unknown.
// Otherwise, nixbench would assume that no cluster runs on such nodes, and would change all of them at once.
func CheckMembersEvaluable(hive *nixeval.Hive, recorded *state.Store) error {
	broken := &nixeval.EvalError{Units: map[string]*nixeval.NixError{}}
	var nodes []string
	for _, n := range hive.Nodes {
		if why := hive.Broken[n.Unit]; why != nil && recorded.Node(n.Name).LastConfirmed != nil {
			nodes = append(nodes, n.Name)
			broken.Units[n.Unit] = why
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	err := fmt.Errorf("%v; nothing is changed, because these nodes may be members of a running cluster: %s", broken, strings.Join(nodes, ", "))
	return failure.WithHint(failure.WithKind(failure.Evaluation, err), "fix their configuration in the hive; nixbench eval shows the errors")
}
