package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
)

// drainMembers drains members of an engine with one call, and sends events for the start, the progress and the end. A member on
// whose node a systemd unit of the engine is down gets only a short time limit: the engine cannot observe there when its workloads
// have ended, and the change of the node may repair the unit.
func (r reporter) drainMembers(ctx context.Context, e engine.Engine, nodes []string, text string, o engine.DrainOptions) error {
	for _, node := range nodes {
		r.send.Send(event.Event{Kind: event.NodeStart, Phase: event.Drain, Node: node, Text: text})
	}
	o.Broken = r.findBrokenMembers(ctx, e, nodes)
	err := context.Cause(ctx)
	if err == nil {
		err = r.watch(ctx, e, nodes, func(ctx context.Context) error { return e.Drain(ctx, nodes, o, r.sendProgress) })
	}
	for _, node := range nodes {
		r.send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Drain, Node: node, Failed: err != nil})
	}
	if err == nil {
		return nil
	}
	failed := nodes[0]
	var one *engine.DrainError
	if errors.As(err, &one) {
		failed = one.Node
	}
	return &fleet.NodeError{Node: failed, Step: event.Drain, Err: err}
}

// findBrokenMembers returns the nodes on which systemd units of the engine itself are down, and sends a warning for each of these
// nodes.
func (r reporter) findBrokenMembers(ctx context.Context, e engine.Engine, nodes []string) []string {
	i, ok := e.(engine.Inspector)
	if !ok {
		return nil
	}
	faults := make([]error, len(nodes))
	var inspected sync.WaitGroup
	for n, node := range nodes {
		inspected.Go(func() { faults[n] = engine.Inspect(ctx, i, node, true) })
	}
	inspected.Wait()
	var broken []string
	for n, node := range nodes {
		if faults[n] != nil && ctx.Err() == nil {
			broken = append(broken, node)
			r.warn(node, failure.On(node, fmt.Errorf("%w; its drain has a short time limit, because the end of its work cannot be observed", faults[n])))
		}
	}
	return broken
}

// sendProgress sends an event with the progress of a drain, or of a wait for a member of the cluster.
func (r reporter) sendProgress(node, text string) {
	r.send.Send(event.Event{Kind: event.NodeProgress, Phase: event.Drain, Node: node, Text: text})
}

// CheckDrains returns, by node, what a drain of the node would delete, and what would block the drain. It returns an
// [engine.BlockedError] if a drain would be blocked. The nodes in change are drained before they change. The nodes in remove are
// drained before they are removed from the cluster.
func (cluster Cluster) CheckDrains(ctx context.Context, change, remove []string) (map[string]engine.DrainCheck, error) {
	all := map[string]engine.DrainCheck{}
	o := cluster.drainOptions
	for _, e := range cluster.engines {
		maps.Copy(all, cluster.checkEngineDrains(ctx, e, cluster.drainableNodes(e, change), o))
		maps.Copy(all, cluster.checkEngineDrains(ctx, e, cluster.drainableNodes(e, remove), o.ForRemoval()))
	}
	for _, l := range cluster.leaving {
		leave := l.membersAmong(change)
		maps.Copy(all, cluster.checkEngineDrains(ctx, l.engine, leave, l.drainOptions(leave, o)))
	}
	if ctx.Err() != nil {
		return all, context.Cause(ctx)
	}
	return all, newBlockedError(all)
}

// drainableNodes returns those of the nodes that are members of engine e and can be drained: e answers, and the machine of the
// node was not recreated.
func (cluster Cluster) drainableNodes(e engine.Engine, nodes []string) []string {
	return slices.DeleteFunc(slices.Clone(nodes), func(node string) bool {
		m, isMember := cluster.members[node]
		return !isMember || m.engine != e || m.Recreated || m.Unreachable
	})
}

// checkEngineDrains returns, by node, what a drain of a member of engine e would delete, and what would block the drain. If this
// check fails, it only sends a warning, because the drain itself checks again.
func (r reporter) checkEngineDrains(ctx context.Context, e engine.Engine, nodes []string, o engine.DrainOptions) map[string]engine.DrainCheck {
	checker, ok := e.(engine.DrainChecker)
	if !ok || len(nodes) == 0 || ctx.Err() != nil {
		return nil
	}
	checks, err := checker.CheckDrain(ctx, nodes, o)
	if err != nil && ctx.Err() == nil {
		r.warn("", err)
	}
	maps.DeleteFunc(checks, func(_ string, c engine.DrainCheck) bool { return len(c.Blocked)+len(c.Deleted) == 0 })
	return checks
}

// newBlockedError returns an [engine.BlockedError] if something blocks a drain, otherwise nil.
func newBlockedError(checks map[string]engine.DrainCheck) error {
	blocked := &engine.BlockedError{Nodes: map[string][]engine.DrainItem{}}
	for node, check := range checks {
		if len(check.Blocked) > 0 {
			blocked.Nodes[node] = check.Blocked
		}
	}
	if len(blocked.Nodes) == 0 {
		return nil
	}
	return blocked
}

// announceDeletions sends a note for each workload that the drains will delete.
func (r reporter) announceDeletions(checks map[string]engine.DrainCheck) {
	for _, node := range slices.Sorted(maps.Keys(checks)) {
		for _, item := range checks[node].Deleted {
			r.send.Send(event.Event{Kind: event.Message, Level: "note", Node: node, Text: fmt.Sprintf("%s: the drain deletes %s, which %s", node, item.Work, item.Reason)})
		}
	}
}
