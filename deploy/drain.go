package deploy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/nixeval"
)

// drainNode drains a member. If the member's own programs do not work, it is drained for a short time only,
// because the engine cannot see its work end and the change may be what repairs the member.
func (d *Deployer) drainNode(ctx context.Context, e engine.Engine, node, what string, o engine.DrainOptions) error {
	return d.runMemberStep(node, what, func(report func(string)) error {
		if i, ok := e.(engine.Inspector); ok {
			err := i.Inspect(ctx, node)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				o.Broken = true
				d.warn(node, failure.On(node, fmt.Errorf("%w; its drain has a short time limit, because the end of its pods cannot be observed", err)))
			}
		}
		return e.Drain(ctx, node, o, report)
	})
}

// needsDrain reports whether the node of a task is drained before it changes.
func (r *run) needsDrain(t task) bool {
	return !r.WithoutDrain && (t.machine != nil || !t.unchanged && r.Goal.activatesNow())
}

// checkRunDrains checks all drains of a run before the first node changes: of nodes that change, and of nodes
// that are removed during the run or at its end.
func (r *run) checkRunDrains(ctx context.Context, cluster clusterState, tasks []task) error {
	if r.WithoutDrain {
		return nil
	}
	var change, leave []string
	for _, t := range tasks {
		switch {
		case t.recreatesMachine():
			leave = append(leave, t.node.Name)
		case r.needsDrain(t):
			change = append(change, t.node.Name)
		}
	}
	if r.machines != nil {
		for _, c := range r.machines.plan.Changes {
			if c.Action == provision.Remove && !r.machines.plan.HasMachine(c.Node) {
				leave = append(leave, c.Node)
			}
		}
	}
	return r.checkDrains(ctx, cluster, change, leave)
}

// checkDrains returns an error if the drain of a member would be refused. The members in leave are removed
// after their drain.
func (d *Deployer) checkDrains(ctx context.Context, cluster clusterState, change, leave []string) error {
	blocked := &engine.BlockedError{Nodes: map[string][]engine.DrainItem{}}
	for _, e := range cluster.engines {
		for permanent, nodes := range map[bool][]string{false: change, true: leave} {
			o := cluster.drainOptions
			o.ForRemoval = permanent
			err := d.checkEngineDrains(ctx, e, cluster.drainableNodes(e, nodes), o)
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

// checkEngineDrains returns an error if a drain of an engine's members would be refused. It reports what the
// other drains delete. If the check itself fails, that is only a warning, because the drain checks again.
func (d *Deployer) checkEngineDrains(ctx context.Context, e engine.Engine, nodes []string, o engine.DrainOptions) error {
	checker, ok := e.(engine.DrainChecker)
	if !ok || len(nodes) == 0 {
		return nil
	}
	checks, err := checker.CheckDrain(ctx, nodes, o)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		d.warn("", err)
		return nil
	}
	blocked := &engine.BlockedError{Nodes: map[string][]engine.DrainItem{}}
	for _, node := range sortedKeys(checks) {
		if items := checks[node].Blocked; len(items) > 0 {
			blocked.Nodes[node] = items
		}
	}
	if len(blocked.Nodes) > 0 {
		return blocked
	}
	for _, node := range sortedKeys(checks) {
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
	drains := map[bool][]string{} // true: before a removal
	canAsk := false
	for _, p := range previews {
		machine := provision.Keep
		if p.Machine != nil {
			machine = p.Machine.Action
		}
		canAsk = canAsk || p.From != ""
		switch {
		case machine == provision.Remove, machine == provision.Recreate:
			drains[true] = append(drains[true], p.Node)
		case machine == provision.Restart, p.Action == WouldSwitch, p.Action == WouldDefault, p.Action == WouldFirst && p.From != "":
			drains[false] = append(drains[false], p.Node)
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
		for permanent, nodes := range drains {
			how := o.Drain
			how.ForRemoval = permanent
			checks, err := checker.CheckDrain(ctx, nodes, how)
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
