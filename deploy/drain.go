package deploy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/nixeval"
)

// drainFunc is [engine.Engine.Drain] or [engine.MemberRemover.DrainForRemoval].
type drainFunc func(ctx context.Context, nodes []string, o engine.DrainOptions, report engine.Report) error

// drainMembers drains members of an engine with one call, and sends the start, the progress and the end. A
// member whose own programs do not work is drained for a short time only, because the engine cannot see its
// work end and the change may be what repairs the member.
func (d *Deployer) drainMembers(ctx context.Context, e engine.Engine, drain drainFunc, nodes []string, text string, o engine.DrainOptions) error {
	for _, node := range nodes {
		d.Send.Send(event.Event{Kind: event.NodeStart, Phase: event.Drain, Node: node, Text: text})
	}
	o.Broken = d.findBroken(ctx, e, nodes)
	err := context.Cause(ctx)
	if err == nil {
		err = drain(ctx, nodes, o, d.reportDrain)
	}
	for _, node := range nodes {
		d.Send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Drain, Node: node, Failed: err != nil})
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

// findBroken returns the nodes whose own programs do not work, with a warning for each.
func (d *Deployer) findBroken(ctx context.Context, e engine.Engine, nodes []string) []string {
	i, ok := e.(engine.Inspector)
	if !ok {
		return nil
	}
	faults := make([]error, len(nodes))
	var inspected sync.WaitGroup
	for n, node := range nodes {
		inspected.Go(func() { faults[n] = i.Inspect(ctx, node) })
	}
	inspected.Wait()
	var broken []string
	for n, node := range nodes {
		if faults[n] != nil && ctx.Err() == nil {
			broken = append(broken, node)
			d.warn(node, fmt.Errorf("%s: %w; it is drained for a short time only, because the end of its work cannot be observed", node, faults[n]))
		}
	}
	return broken
}

// reportDrain sends the progress of a drain or of a wait for a member.
func (d *Deployer) reportDrain(node, text string) {
	d.Send.Send(event.Event{Kind: event.NodeProgress, Phase: event.Drain, Node: node, Text: text})
}

// needsDrain reports whether the node of a task is drained before it changes.
func (r *run) needsDrain(t task) bool {
	return !r.WithoutDrain && (t.machine != nil || !t.Unchanged && r.Goal.ActivatesNow())
}

// checkRunDrains checks all drains of a run before the first node changes: of nodes that change, and of nodes
// that are removed during the run or at its end.
func (r *run) checkRunDrains(ctx context.Context, cluster clusterState, tasks []task) error {
	if r.WithoutDrain {
		return nil
	}
	var change, remove []string
	for _, t := range tasks {
		switch {
		case t.recreatesMachine():
			remove = append(remove, t.Node.Name)
		case r.needsDrain(t):
			change = append(change, t.Node.Name)
		}
	}
	remove = append(remove, r.machines.RemovedNodes()...)
	return r.checkDrains(ctx, cluster, change, remove)
}

// checkDrains returns an error if the drain of a member would be refused. The members in remove are removed
// after their drain.
func (d *Deployer) checkDrains(ctx context.Context, cluster clusterState, change, remove []string) error {
	o := cluster.drainOptions
	blocked := &engine.BlockedError{Nodes: map[string][]engine.DrainItem{}}
	for _, e := range cluster.engines {
		for _, err := range []error{
			d.checkEngineDrains(ctx, e, engine.DrainChecker.CheckDrain, cluster.drainableNodes(e, change), o),
			d.checkEngineDrains(ctx, e, engine.DrainChecker.CheckDrainForRemoval, cluster.drainableNodes(e, remove), o),
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
	if len(blocked.Nodes) > 0 {
		return blocked
	}
	return nil
}

// drainableNodes returns those of the nodes that are members of an engine which answers.
func (cluster clusterState) drainableNodes(e engine.Engine, nodes []string) []string {
	return slices.DeleteFunc(slices.Clone(nodes), func(node string) bool {
		m, isMember := cluster.members[node]
		return !isMember || m.engine != e || m.recreated || m.unreachable
	})
}

// checkFunc is a method of [engine.DrainChecker].
type checkFunc func(c engine.DrainChecker, ctx context.Context, nodes []string, o engine.DrainOptions) (map[string]engine.DrainCheck, error)

// checkEngineDrains returns an error if a drain of an engine's members would be refused. It reports what the
// other drains delete. If the check itself fails, that is only a warning, because the drain checks again.
func (d *Deployer) checkEngineDrains(ctx context.Context, e engine.Engine, check checkFunc, nodes []string, o engine.DrainOptions) error {
	checker, ok := e.(engine.DrainChecker)
	if !ok || len(nodes) == 0 {
		return nil
	}
	checks, err := check(checker, ctx, nodes, o)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		d.warn("", err)
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
			d.Send.Send(event.Event{Kind: event.Message, Level: "note", Node: node, Text: fmt.Sprintf("%s: the drain deletes %s, which %s", node, item.Work, item.Reason)})
		}
	}
	return nil
}

func nodeNames(nodes []nixeval.Node) []string {
	var out []string
	for _, n := range nodes {
		out = append(out, n.Name)
	}
	return out
}

// previewDrains adds to the previews what the drains of apply would delete, and what would block them. If no
// engine answers, it adds nothing.
func (d *Deployer) previewDrains(ctx context.Context, hive *nixeval.Hive, previews []Preview, o PreviewOptions) error {
	if o.WithoutDrain || d.Engines == nil {
		return nil
	}
	var change, remove []string
	canAsk := false
	for _, p := range previews {
		machine := provision.Keep
		if p.Machine != nil {
			machine = p.Machine.Action
		}
		canAsk = canAsk || p.From != ""
		switch {
		case machine == provision.Remove, machine == provision.Recreate:
			remove = append(remove, p.Node)
		case machine == provision.Restart, p.Action == WouldSwitch, p.Action == WouldDefault, p.Action == WouldFirst && p.From != "":
			change = append(change, p.Node)
		}
	}
	if !canAsk {
		return nil
	}
	engines, err := d.Engines.Of(hive, d.Fleet)
	if err != nil {
		return err
	}
	blocked := &engine.BlockedError{Nodes: map[string][]engine.DrainItem{}}
	for _, e := range engines {
		checker, ok := e.(engine.DrainChecker)
		if !ok {
			continue
		}
		for _, c := range []struct {
			check checkFunc
			nodes []string
		}{{engine.DrainChecker.CheckDrain, change}, {engine.DrainChecker.CheckDrainForRemoval, remove}} {
			if len(c.nodes) == 0 {
				continue
			}
			checks, err := c.check(checker, ctx, c.nodes, o.Drain)
			if err != nil && ctx.Err() == nil {
				d.warn("", err)
			}
			for i, p := range previews {
				if check, ok := checks[p.Node]; ok && len(check.Blocked)+len(check.Deleted) > 0 {
					previews[i].Drain = &check
					if len(check.Blocked) > 0 {
						blocked.Nodes[p.Node] = check.Blocked
					}
				}
			}
		}
	}
	if len(blocked.Nodes) > 0 {
		return blocked
	}
	return nil
}
