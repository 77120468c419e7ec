package inspect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/nixeval"
)

// NodeConditions returns the conditions that every node must meet, independent of its engine. A unit that has
// already failed in before, the inspections before the run by node name, does not violate them. A warning names
// such units once the conditions hold.
func NodeConditions(f *fleet.Fleet, nodes []nixeval.Node, parallel int, before map[string]activate.Node, send event.Sink) []check.Condition {
	var inspected []fleet.Outcome[activate.Node]
	return []check.Condition{{
		Name: fleet.Count(len(nodes), "node") + " up, without failed units",
		Probe: func(ctx context.Context) error {
			var bad []string
			var still []event.Event
			now := Nodes(ctx, f, nodes, parallel, nil)
			for i, o := range now {
				var old []string
				now[i].Value.Failed, old = splitFailedUnits(before[o.Node.Name], o.Value)
				if len(old) > 0 {
					still = append(still, event.Event{Kind: event.Message, Level: "warning", Node: o.Node.Name,
						Text: fmt.Sprintf("%s: failed before this run and has not recovered: %s", o.Node.Name, strings.Join(old, ", "))})
				}
			}
			if ctx.Err() == nil { // a cancelled inspection has no result
				inspected = now
			}
			for _, o := range now {
				switch {
				case o.Err != nil:
					bad = append(bad, o.Err.Error())
				case len(o.Value.Failed) > 0:
					bad = append(bad, fmt.Sprintf("%s: failed: %s", o.Node.Name, strings.Join(o.Value.Failed, ", ")))
				case o.Value.System == "starting":
					bad = append(bad, o.Node.Name+": still starting")
				}
			}
			if len(bad) > 0 {
				return errors.New(strings.Join(bad, "; "))
			}
			for _, e := range still {
				send.Send(e)
			}
			return nil
		},
		Explain: func(ctx context.Context) string {
			reasons := FailureReasons(ctx, f, inspected, parallel)
			var lines []string
			for _, n := range nodes {
				for _, unit := range slices.Sorted(maps.Keys(reasons[n.Name])) {
					lines = append(lines, n.Name+": "+unit+": "+reasons[n.Name][unit])
				}
			}
			return strings.Join(lines, "\n")
		},
	}}
}

// splitFailedUnits splits the failed units of now into those that had not failed in before (since) and those
// that had (old).
func splitFailedUnits(before, now activate.Node) (since, old []string) {
	for _, unit := range now.Failed {
		if slices.Contains(before.Failed, unit) {
			old = append(old, unit)
		} else {
			since = append(since, unit)
		}
	}
	return since, old
}

// MemberConditions returns the conditions that the engine's programs run on the members. The programs are
// inspected on each member, because the engine may notice only a minute later that such a program has stopped.
func MemberConditions(engines []engine.Engine, nodes []nixeval.Node, parallel int) []check.Condition {
	var out []check.Condition
	for _, e := range engines {
		inspector, ok := e.(engine.Inspector)
		if !ok {
			continue
		}
		out = append(out, check.Condition{
			Name: "programs of " + fleet.Count(len(nodes), "member") + " run",
			Probe: func(ctx context.Context) error {
				var bad []string
				for _, o := range fleet.Each(ctx, nodes, parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
					return struct{}{}, inspector.Inspect(ctx, n.Name)
				}) {
					if o.Err != nil {
						bad = append(bad, o.Node.Name+": "+fleet.Brief(o.Node.Name, o.Err))
					}
				}
				if len(bad) > 0 {
					return errors.New(strings.Join(bad, "; "))
				}
				return nil
			},
		})
	}
	return out
}

// Certificates returns the certificates of nodes by node name. A node that does not answer or is not a member
// has none.
func Certificates(ctx context.Context, engines []engine.Engine, nodes []nixeval.Node, parallel int) map[string][]engine.Certificate {
	out := map[string][]engine.Certificate{}
	for _, e := range engines {
		certified, ok := e.(engine.Certified)
		if !ok {
			continue
		}
		for _, o := range fleet.Each(ctx, nodes, parallel, func(ctx context.Context, n nixeval.Node) ([]engine.Certificate, error) {
			return certified.Certificates(ctx, n.Name)
		}) {
			if o.Err == nil {
				out[o.Node.Name] = append(out[o.Node.Name], o.Value...)
			}
		}
	}
	return out
}
