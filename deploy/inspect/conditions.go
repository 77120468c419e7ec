package inspect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/health"
	"github.com/nixbench/nixbench/nixeval"
)

// NodeConditions returns the conditions that every node must meet, independent of its engine. A node must not have failed systemd
// units, and must not run another engine than in the hive. before contains the inspections before the run, by node name. A
// systemd unit that had already failed there does not violate the conditions, and is named in a warning once the conditions hold.
func NodeConditions(f *fleet.Fleet, nodes []nixeval.Node, parallel int, before map[string]activate.Node, send event.Sink) []check.Condition {
	var inspected []fleet.Outcome[activate.Node]
	return []check.Condition{{
		Name: event.Count(len(nodes), "node") + " up, without failed units",
		Probe: func(ctx context.Context) error {
			var bad, final []string      // final: what waiting does not change
			old := map[string][]string{} // node → the units that had failed already before
			now := Nodes(ctx, f, nodes, parallel, nil)
			if ctx.Err() == nil { // a cancelled inspection has no result
				inspected = now
			}
			for i := range now {
				o := &now[i]
				o.Value.Failed = slices.DeleteFunc(o.Value.Failed, func(unit string) bool {
					failedBefore := slices.Contains(before[o.Node.Name].Failed, unit)
					if failedBefore {
						old[o.Node.Name] = append(old[o.Node.Name], unit)
					}
					return failedBefore
				})
				if text := DescribeEngineMismatch(f.Hive(), *o); text != "" {
					final = append(final, o.Node.Name+" "+text)
				}
				switch {
				case errors.Is(o.Err, fleet.ErrNotBooted):
					final = append(final, o.Err.Error())
				case o.Err != nil:
					bad = append(bad, o.Err.Error())
				case len(o.Value.Failed) > 0:
					bad = append(bad, fmt.Sprintf("%s: failed: %s", o.Node.Name, strings.Join(o.Value.Failed, ", ")))
				case o.Value.System == "starting":
					bad = append(bad, o.Node.Name+": still starting")
				}
			}
			if len(final) > 0 {
				return check.Final(joinTexts(append(final, bad...)))
			}
			for _, o := range now {
				if units := old[o.Node.Name]; len(bad) == 0 && len(units) > 0 {
					send.WarnOn(o.Node.Name, "%s: failed before this run and has not recovered: %s", o.Node.Name, strings.Join(units, ", "))
				}
			}
			return joinTexts(bad)
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

// DescribeEngineMismatch returns a warning if an inspected node runs another engine than the hive gives it, and otherwise an empty text.
func DescribeEngineMismatch(hive *nixeval.Hive, o fleet.Outcome[activate.Node]) string {
	u, running, desired := hive.Unit(o.Node.Unit), o.Value.Engine, "no engine"
	if u != nil && u.Deployment.Engine != nil {
		desired = u.Deployment.Engine.Kind
	}
	if o.Err != nil || u == nil || running == "" || running == desired {
		return ""
	}
	return fmt.Sprintf("runs %s, and has %s in the hive; is a --set scheduler=… missing?", running, desired)
}

// joinTexts returns an error with all texts, or nil if there is none.
func joinTexts(texts []string) error {
	if len(texts) == 0 {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}

// programTimeout is the maximum time until the engine's programs run on the members. It is short, because a program that has
// ended rarely recovers.
const programTimeout = 20 * time.Second

// EngineConditions returns the conditions of engines, followed by the conditions that the engines' programs run on the members.
// nixbench inspects these programs on each member, because an engine may notice only a minute later that a program has stopped.
// look returns the function that looks at the members of an engine.
func EngineConditions(engines []engine.Engine, nodes []nixeval.Node, parallel int, o engine.CheckOptions, look func(engine.Engine) check.Look) []check.Condition {
	var own, programs []check.Condition
	for _, e := range engines {
		for _, c := range e.Conditions(o) {
			c.Look = look(e)
			own = append(own, c)
		}
		programs = append(programs, check.Condition{
			Name:   "programs of " + event.Count(len(nodes), "member") + " run",
			Within: programTimeout,
			Look:   look(e),
			Probe: func(ctx context.Context) error {
				var bad []string
				for _, o := range fleet.Each(ctx, nodes, parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
					return struct{}{}, engine.Inspect(ctx, e, n.Name, false)
				}) {
					if o.Err != nil {
						bad = append(bad, o.Node.Name+": "+fleet.Brief(o.Node.Name, o.Err))
					}
				}
				return joinTexts(bad)
			},
		})
	}
	return append(own, programs...)
}

// HealthConditions returns the condition that the health checks of the nodes pass, or nothing if the nodes have none. It is probed
// once: each check has its own time limit.
func HealthConditions(f *fleet.Fleet, nodes []nixeval.Node, parallel int) []check.Condition {
	var checked []nixeval.Node
	limit := time.Duration(0)
	for _, n := range nodes {
		if checks := (health.Checks{ByName: f.Hive().Unit(n.Unit).Deployment.HealthChecks}); len(checks.ByName) > 0 {
			checked, limit = append(checked, n), limit+checks.Limit()+time.Minute // for the login
		}
	}
	if len(checked) == 0 {
		return nil
	}
	return []check.Condition{{
		Name: "health checks of " + event.Count(len(checked), "node") + " pass", Limit: limit,
		Probe: func(ctx context.Context) error {
			var bad []string
			for _, err := range fleet.Errors(fleet.Each(ctx, checked, parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
				checks, err := health.Of(ctx, f, n)
				if err == nil {
					err = failure.On(n.Name, checks.Await(ctx, event.Check, f.EventSink()))
				}
				return struct{}{}, err
			})) {
				bad = append(bad, err.Error())
			}
			if err := joinTexts(bad); err != nil {
				return check.Final(err)
			}
			return nil
		},
	}}
}
