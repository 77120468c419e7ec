package deploy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/nixeval"
)

// drain moves the work of a member away. A member whose own programs do not work is drained for a
// short time only, since its work cannot be seen to end: the change may be what repairs it.
func (d *Deployer) drain(ctx context.Context, e engine.Engine, node, what string, o engine.DrainOptions) error {
	return d.parting(node, what, func(report func(string)) error {
		if i, ok := e.(engine.Inspector); ok {
			err := i.Inspect(ctx, node)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				o.Broken = true
				d.warn(node, fmt.Errorf("%s: %w; it is drained for a short time only, since its work cannot be seen to end", node, err))
			}
		}
		return e.Drain(ctx, node, o, report)
	})
}

// drains tells whether a task changes its node so that it is drained before.
func (r *run) drains(t task) bool {
	return !r.WithoutDrain && (t.machine != nil || !t.unchanged && r.Goal.runs())
}

// mayDrain checks all drains of a run before the first node is changed: those of nodes that change,
// and those of nodes that leave for good, now or at the end.
func (r *run) mayDrain(ctx context.Context, l living, todo []task) error {
	if r.WithoutDrain {
		return nil
	}
	var change, leave []string
	for _, t := range todo {
		switch {
		case t.recreates():
			leave = append(leave, t.node.Name)
		case r.drains(t):
			change = append(change, t.node.Name)
		}
	}
	if r.machines != nil {
		for _, c := range r.machines.plan.Changes {
			if c.Action == provision.Remove && !r.machines.plan.Wishes(c.Node) {
				leave = append(leave, c.Node)
			}
		}
	}
	return r.checkDrains(ctx, l, change, leave)
}

// checkDrains refuses to begin where a drain of members would be refused. Those in leave are removed
// after it.
func (d *Deployer) checkDrains(ctx context.Context, l living, change, leave []string) error {
	blocked := &engine.BlockedError{Nodes: map[string][]engine.DrainItem{}}
	for _, e := range l.engines {
		for good, nodes := range map[bool][]string{false: change, true: leave} {
			o := l.drain
			o.ForGood = good
			err := d.checkDrain(ctx, e, l.drainable(e, nodes), o)
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

// drainable are those of the nodes that are members of an engine which can be asked about them.
func (l living) drainable(e engine.Engine, nodes []string) []string {
	return slices.DeleteFunc(slices.Clone(nodes), func(node string) bool {
		m, is := l.members[node]
		return !is || m.engine != e || m.anew || m.silent
	})
}

// checkDrain refuses drains of an engine that would be refused, and says what the others delete. What
// cannot be asked is no reason to stop: the drain itself looks again.
func (d *Deployer) checkDrain(ctx context.Context, e engine.Engine, nodes []string, o engine.DrainOptions) error {
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

func names(nodes []nixeval.Node) []string {
	var out []string
	for _, n := range nodes {
		out = append(out, n.Name)
	}
	return out
}

// previewDrains finds out what the drains of apply would delete, or be refused for. Where nothing
// answers, there is nothing to show.
func (d *Deployer) previewDrains(ctx context.Context, hive *nixeval.Hive, previews []Preview, o PreviewOptions) error {
	if o.WithoutDrain || d.Engines == nil {
		return nil
	}
	drains := map[bool][]string{} // true: for good
	asks := false
	for _, p := range previews {
		machine := provision.Keep
		if p.Machine != nil {
			machine = p.Machine.Action
		}
		asks = asks || p.From != ""
		switch {
		case machine == provision.Remove, machine == provision.Recreate:
			drains[true] = append(drains[true], p.Node)
		case machine == provision.Restart, p.Action == WouldSwitch, p.Action == WouldDefault, p.Action == WouldFirst && p.From != "":
			drains[false] = append(drains[false], p.Node)
		}
	}
	if !asks {
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
		for good, nodes := range drains {
			how := o.Drain
			how.ForGood = good
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
