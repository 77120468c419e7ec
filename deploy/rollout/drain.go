package rollout

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/nixeval"
)

// drainMembers drains members of an engine with one call, and sends events for the start, the progress and the end. A member on
// whose node a systemd unit of the engine is down gets only a short time limit: the engine cannot observe there when its workloads
// have ended, and the change of the node may repair the unit.
func (r reporter) drainMembers(ctx context.Context, e engine.Engine, nodes []string, text string, o engine.DrainOptions) error {
	return r.runStep(ctx, e, nodes, text, func(ctx context.Context) error {
		if o.Broken = r.findBrokenMembers(ctx, e, nodes); ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return e.Drain(ctx, nodes, o, r.sendProgress)
	})
}

// findBrokenMembers returns the nodes on which systemd units of the engine itself are down, and sends a warning for each.
func (r reporter) findBrokenMembers(ctx context.Context, e engine.Engine, nodes []string) []string {
	var mu sync.Mutex // guards broken
	var broken []string
	_ = fleet.ForAll(nodes, func(node string) error {
		if err := engine.Inspect(ctx, e, node, true); err != nil && ctx.Err() == nil {
			r.send.WarnOn(node, "%v; its drain has a short time limit, because the end of its work cannot be observed", failure.On(node, err))
			mu.Lock()
			defer mu.Unlock()
			broken = append(broken, node)
		}
		return nil
	})
	return broken
}

// CheckDrains returns, by node, what the drains of a plan would delete or what blocks them; if one is blocked, also a BlockedError.
func (cluster Cluster) CheckDrains(ctx context.Context, d plan.Drains) (map[string]engine.DrainCheck, error) {
	all := map[string]engine.DrainCheck{}
	o := cluster.observer.Drain
	for _, e := range cluster.engines {
		maps.Copy(all, cluster.checkEngineDrains(ctx, e, cluster.Drainable(e, d.Change), o))
		maps.Copy(all, cluster.checkEngineDrains(ctx, e, cluster.Drainable(e, d.Remove), o.ForRemoval()))
	}
	for _, l := range cluster.leaving {
		leave := l.Drainable(l.engine, d.Change)
		maps.Copy(all, cluster.checkEngineDrains(ctx, l.engine, leave, l.drainOptions(leave, o)))
	}
	if ctx.Err() != nil {
		return all, context.Cause(ctx)
	}
	return all, newBlockedError(all)
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
		r.send.Warn("%v", err)
	}
	maps.DeleteFunc(checks, func(_ string, c engine.DrainCheck) bool { return len(c.Blocked)+len(c.Deleted) == 0 })
	return checks
}

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

func (r reporter) announceDeletions(checks map[string]engine.DrainCheck) {
	for _, node := range nixeval.SortedNames(checks) {
		for _, item := range checks[node].Deleted {
			r.send.NoteOn(node, "%s: the drain deletes %s, which %s", node, item.Work, item.Reason)
		}
	}
}

// drainForRemoval drains members of an engine before they are removed. If the drain fails, none of the nodes stays drained.
func (cluster Cluster) drainForRemoval(ctx context.Context, e engine.Engine, nodes []string) error {
	if len(nodes) == 0 {
		return nil
	}
	err := cluster.drainMembers(ctx, e, nodes, "is drained before its removal", cluster.observer.Drain.ForRemoval())
	if err == nil {
		for _, node := range nodes {
			cluster.drained[node] = plan.Member{Engine: e}
		}
	}
	return err
}

// RemoveMembers removes nodes from their cluster, before the machines of the nodes are removed. For each engine, it first drains
// all nodes (except those that were drained before the first change), and then removes them. If a drain fails, no node of this
// engine is removed, and its nodes accept work as before.
func (cluster Cluster) RemoveMembers(ctx context.Context, nodes []string, withoutDrain bool) error {
	for _, e := range cluster.engines {
		if err := cluster.removeFrom(ctx, e, nodes, withoutDrain); err != nil {
			return errors.Join(err, cluster.UncordonDrained(ctx))
		}
	}
	return nil
}

func (cluster Cluster) removeFrom(ctx context.Context, e engine.Engine, nodes []string, withoutDrain bool) error {
	members, err := e.Members(ctx)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && !withoutDrain:
		return NewClusterUnavailableError(err)
	case err != nil:
		cluster.send.Warn("machines are removed, and the other members still list their nodes: %v", err)
		return nil
	}
	remove := among(nodes, members)
	undrained := slices.DeleteFunc(slices.Clone(remove), func(node string) bool { _, drained := cluster.drained[node]; return drained })
	if !withoutDrain && len(undrained) > 0 {
		checks := cluster.checkEngineDrains(ctx, e, undrained, cluster.observer.Drain.ForRemoval())
		if err := newBlockedError(checks); err != nil {
			return err
		}
		cluster.announceDeletions(checks)
		if err := cluster.drainForRemoval(ctx, e, undrained); err != nil {
			return err
		}
	}
	for _, node := range remove {
		if err := cluster.runStep(ctx, e, []string{node}, "is removed from the cluster", func(ctx context.Context) error { return e.RemoveMember(ctx, node) }); err != nil {
			return err
		}
		delete(cluster.drained, node)
	}
	return nil
}
