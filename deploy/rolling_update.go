package deploy

import (
	"context"
	"errors"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// rollingUpdate calls change for each node, wave by wave with share as the size of a wave. It drains members
// before their change, and reports the result of each node.
func (d *Deployer) rollingUpdate(ctx context.Context, nodes []nixeval.Node, report func(node string) rollout.Report, withoutDrain bool, o engine.DrainOptions, share selection.Share, parallel int,
	change func(context.Context, nixeval.Node) (state.NodeResult, string, error)) ([]state.NodeResult, error) {
	var results []state.NodeResult
	skip := func(n nixeval.Node, err error) {
		results = append(results, d.reportResult(state.NodeResult{Node: n.Name, Unit: n.Unit, Outcome: state.Skipped}, "", err))
	}
	cluster, err := d.observeCluster(ctx, d.Fleet.Hive(), report, o)
	cluster = cluster.WithLeaving()
	if err == nil && !withoutDrain {
		err = cluster.CheckDrains(ctx, nodeNames(nodes), nil)
	}
	if err != nil {
		for _, n := range nodes {
			skip(n, err)
		}
		return results, err
	}
	waves := cluster.OrderWaves(nodes, func(string) bool { return false }, share)
	var errs []error
	for _, o := range rollout.EachWave(ctx, waves, parallel, func(ctx context.Context, n nixeval.Node) (state.NodeResult, error) {
		r := state.NodeResult{Node: n.Name, Unit: n.Unit, Outcome: state.Failed}
		text := ""
		err := cluster.WithDrain(ctx, n.Name, withoutDrain, func() (err error) {
			r, text, err = change(ctx, n)
			return err
		})
		return d.reportResult(r, text, err), err
	}, func(int) {}) {
		if o.Value.Node == "" { // the change of this node was not started
			skip(o.Node, o.Err)
		} else {
			results = append(results, o.Value)
		}
		errs = append(errs, o.Err)
	}
	errs = append(errs, d.uncordonReturned(ctx, nodes))
	return results, errors.Join(errs...)
}

func nodeNames(nodes []nixeval.Node) []string {
	var out []string
	for _, n := range nodes {
		out = append(out, n.Name)
	}
	return out
}

// observeCluster asks the engines of the hive for the members of the running cluster. It starts units of engines that do not answer.
func (d *Deployer) observeCluster(ctx context.Context, hive *nixeval.Hive, report func(node string) rollout.Report, o engine.DrainOptions) (rollout.Cluster, error) {
	return rollout.Observe(ctx, d.Engines, d.Fleet, hive, d.Store, report, true, o, d.Send)
}

// uncordonReturned uncordons members that were drained when their nodes left the engine that they run again.
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
