package stages

import (
	"context"
	"errors"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// RollingOptions are the options of a rolling update that changes nodes to systems they have already, such as a rollback or a
// reboot.
type RollingOptions struct {
	Parallel       int
	MaxUnavailable selection.Share
	WithoutDrain   bool // change members of a running cluster without draining them
	Drain          engine.DrainOptions
}

// update calls change for each node, in the waves of a rolling update, and reports the result of each node. observed maps the name
// of a node to its inspection.
func (d *Deployer) update(ctx context.Context, nodes []nixeval.Node, observed map[string]activate.Node, o RollingOptions, change func(context.Context, nixeval.Node) rollout.Result) ([]rollout.Result, error) {
	report := func(name string) rollout.Report { return newReport(observed[name]) }
	cluster, err := d.observer(d.Fleet.Hive(), report, o.Drain).Observe(ctx)
	if err != nil {
		var results []rollout.Result
		for _, n := range nodes {
			results = append(results, rollout.NewResult(n, "", state.Skipped, "", err))
			d.report(results[len(results)-1])
		}
		return results, err
	}
	options := plan.Options{Options: node.Options{Goal: node.Switch}, WithoutDrain: o.WithoutDrain, MaxUnavailable: o.MaxUnavailable}
	var all []plan.Node
	for _, n := range nodes {
		all = append(all, plan.ActivateEarlier(n, options))
	}
	cluster = cluster.WithLeaving()
	x := rollout.Rollout{Cluster: cluster, Parallel: o.Parallel, Done: d.report}
	p := plan.Decide(all, nil, cluster.Observed(), options)
	results, err := x.Execute(ctx, p, func(ctx context.Context, n plan.Node, _ func(context.Context)) rollout.Result {
		return change(ctx, n.Node)
	})
	return results, errors.Join(err, d.uncordonReturned(ctx, nodes))
}

// observer returns an observer of the running cluster. If an engine does not answer, the observer starts systemd units of the
// engine that are down.
func (d *Deployer) observer(hive *nixeval.Hive, report func(node string) rollout.Report, o engine.DrainOptions) rollout.Observer {
	return rollout.Observer{Engines: d.Engines, Fleet: d.Fleet, Hive: hive, Store: d.Store, Report: report, MayStart: true, Drain: o, Send: d.Send}
}

// uncordonReturned uncordons members whose nodes had left their engine, were drained for that, and now run the same engine again.
func (d *Deployer) uncordonReturned(ctx context.Context, nodes []nixeval.Node) error {
	if d.Engines == nil || ctx.Err() != nil {
		return nil
	}
	return rollout.UncordonReturned(ctx, d.Engines, d.Fleet, d.Fleet.Hive(), d.Store, nodes, d.Send)
}

// newReport returns what an inspected node has reported.
func newReport(observed activate.Node) rollout.Report {
	return rollout.Report{Deployed: node.HasDeployment(observed), Engine: observed.Engine}
}

// warn sends a warning: a problem that does not end the run.
func (d *Deployer) warn(node string, err error) {
	d.Send.Send(event.Event{Kind: event.Message, Level: "warning", Node: node, Text: err.Error()})
}

// toNodeResults returns results as they are in the record of the run.
func toNodeResults(results []rollout.Result) []state.NodeResult {
	out := make([]state.NodeResult, len(results))
	for i, r := range results {
		out[i] = toNodeResult(r)
	}
	return out
}
