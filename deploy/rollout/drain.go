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

// drainMembers drains members of an engine with one call, and sends events for the start, the progress and the
// end. A member whose own programs do not work is drained with a short time limit, because the engine cannot
// observe the end of its workloads, and because the change may repair the member.
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

// findBrokenMembers returns the nodes whose own programs do not work, and sends a warning for each of them.
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

// sendProgress sends the progress of a drain or of a wait for a member.
func (r reporter) sendProgress(node, text string) {
	r.send.Send(event.Event{Kind: event.NodeProgress, Phase: event.Drain, Node: node, Text: text})
}

// CheckDrains returns an [engine.BlockedError] if the drain of a member would be blocked. Nodes in change are
// drained before they change, nodes in remove before they are removed.
func (cluster Cluster) CheckDrains(ctx context.Context, change, remove []string) error {
	o := cluster.drainOptions
	blocked := &engine.BlockedError{Nodes: map[string][]engine.DrainItem{}}
	for _, e := range cluster.engines {
		for _, err := range []error{
			cluster.checkEngineDrains(ctx, e, cluster.drainableNodes(e, change), o),
			cluster.checkEngineDrains(ctx, e, cluster.drainableNodes(e, remove), o.ForRemoval()),
		} {
			var one *engine.BlockedError
			switch {
			case errors.As(err, &one):
				maps.Copy(blocked.Nodes, one.Nodes)
			case err != nil:
				return err
			}
		}
	}
	for _, l := range cluster.leaving {
		var one *engine.BlockedError
		leave := l.membersAmong(change)
		if err := cluster.checkEngineDrains(ctx, l.engine, leave, l.drainOptions(leave, o)); errors.As(err, &one) {
			maps.Copy(blocked.Nodes, one.Nodes)
		} else if err != nil {
			return err
		}
	}
	if len(blocked.Nodes) > 0 {
		return blocked
	}
	return nil
}

// drainableNodes returns the nodes that are members of e and can be drained: e answers, and the node's machine
// was not recreated.
func (cluster Cluster) drainableNodes(e engine.Engine, nodes []string) []string {
	return slices.DeleteFunc(slices.Clone(nodes), func(node string) bool {
		m, isMember := cluster.members[node]
		return !isMember || m.engine != e || m.recreated || m.unreachable
	})
}

// checkEngineDrains returns an [engine.BlockedError] if the drain of a member of e would be blocked. Otherwise
// it sends a note for each workload that the drains delete. If the check itself fails, it sends only a warning,
// because the drain checks again.
func (r reporter) checkEngineDrains(ctx context.Context, e engine.Engine, nodes []string, o engine.DrainOptions) error {
	checker, ok := e.(engine.DrainChecker)
	if !ok || len(nodes) == 0 {
		return nil
	}
	checks, err := checker.CheckDrain(ctx, nodes, o)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		r.warn("", err)
		return nil
	}
	blocked := &engine.BlockedError{Nodes: map[string][]engine.DrainItem{}}
	for _, node := range slices.Sorted(maps.Keys(checks)) {
		if items := checks[node].Blocked; len(items) > 0 {
			blocked.Nodes[node] = items
		}
	}
	if len(blocked.Nodes) > 0 {
		return blocked
	}
	for _, node := range slices.Sorted(maps.Keys(checks)) {
		for _, item := range checks[node].Deleted {
			r.send.Send(event.Event{Kind: event.Message, Level: "note", Node: node, Text: fmt.Sprintf("%s: the drain deletes %s, which %s", node, item.Work, item.Reason)})
		}
	}
	return nil
}

// PreviewDrains returns, by node name, the data that drains would delete and the workloads that would block
// them. It returns an [engine.BlockedError] if a drain would be blocked. It adds nothing for an engine that
// does not answer.
func PreviewDrains(ctx context.Context, engines []engine.Engine, change, remove []string, o engine.DrainOptions, send event.Sink) (map[string]engine.DrainCheck, error) {
	out := map[string]engine.DrainCheck{}
	blocked := &engine.BlockedError{Nodes: map[string][]engine.DrainItem{}}
	for _, e := range engines {
		checker, ok := e.(engine.DrainChecker)
		if !ok {
			continue
		}
		for _, c := range []struct {
			nodes   []string
			options engine.DrainOptions
		}{{change, o}, {remove, o.ForRemoval()}} {
			if len(c.nodes) == 0 {
				continue
			}
			checks, err := checker.CheckDrain(ctx, c.nodes, c.options)
			if err != nil && ctx.Err() == nil {
				reporter{send}.warn("", err)
			}
			for node, check := range checks {
				if len(check.Blocked)+len(check.Deleted) > 0 {
					out[node] = check
				}
				if len(check.Blocked) > 0 {
					blocked.Nodes[node] = check.Blocked
				}
			}
		}
	}
	if len(blocked.Nodes) > 0 {
		return out, blocked
	}
	return out, nil
}
