package stages

import (
	"context"
	"errors"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// PlanReboot returns the steps that reboot inspected nodes. With ifNeeded, only nodes that would boot another kernel than the
// running one are rebooted.
func PlanReboot(inspected []fleet.Outcome[activate.Node], ifNeeded bool) []Step {
	steps := make([]Step, len(inspected))
	for i, o := range inspected {
		steps[i] = Step{Node: o.Node, From: o.Value, Reboot: true, Path: o.Value.Profile, Err: o.Err}
		if ifNeeded && !o.Value.RebootNeeded() {
			steps[i].SkipReason = "needs no reboot"
		}
	}
	return steps
}

// ExecuteSteps carries out the steps of a rollback or a reboot. The record of the run contains the result of each node.
func (d *Deployer) ExecuteSteps(ctx context.Context, steps []Step, o Options) ([]state.NodeResult, error) {
	o.Goal = node.Switch
	d.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Deploy, Total: len(steps)})
	var changing []Step
	var results []rollout.Result
	var errs []error
	for _, s := range steps {
		if s.ChangesNode() {
			changing = append(changing, s)
			continue
		}
		r := s.newResult()
		if s.Err != nil {
			r.Outcome = state.Failed
		}
		d.report(r)
		results, errs = append(results, r), append(errs, s.Err)
	}
	done, err := d.update(ctx, changing, o, func(ctx context.Context, s Step) rollout.Result {
		if s.Reboot {
			r := d.rebootNode(ctx, s.Node, s.From.BootID, o.RebootTimeout)
			if r.Err == nil {
				d.Fleet.Drop(s.Node.Name) // close the connection to the system that ran before the reboot
				if r.Err = d.UploadVolatileKeys(ctx, s.Node); r.Err == nil {
					r.Err = d.CheckHealth(ctx, s.Node, o.Options.Options, "it has rebooted")
				}
				if r.Err != nil {
					r.Outcome = state.Failed
				}
			}
			return r
		}
		r := s.newResult()
		done, err := d.RollBack(ctx, s.Node, s.From, s.Path, s.Generation, o.Options.Options)
		if err == nil && !done.Activation.OnlyBoots() { // the hive may be newer than the system, so a health check that fails does not undo the rollback
			if err = d.CheckHealth(ctx, s.Node, o.Options.Options, "it keeps the earlier system"); err != nil {
				done.Outcome = state.Failed
			}
		}
		r.Outcome, r.After, r.Text, r.Err = done.Outcome, done.After(), done.Text, err
		return r
	})
	results, err = append(results, done...), errors.Join(append(errs, err)...)
	d.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Deploy, Total: len(steps), Failed: err != nil, Text: formatCounts(results, node.Switch)})
	out := make([]state.NodeResult, len(results))
	for i, r := range results {
		out[i] = toNodeResult(r)
	}
	return out, err
}

func (s Step) newResult() rollout.Result {
	r := rollout.NewResult(s.Node, s.Path, state.Unchanged, s.String(), s.Err)
	r.Before = node.GenerationOf(s.From, s.From.Current)
	return r
}

// update calls change for each step, in the waves of a rolling update, and reports the result of each node. The nodes change to
// systems that they have already.
func (d *Deployer) update(ctx context.Context, steps []Step, o Options, change func(context.Context, Step) rollout.Result) ([]rollout.Result, error) {
	byNode := map[string]Step{}
	var nodes []nixeval.Node
	var all []plan.Node
	for _, s := range steps {
		byNode[s.Node.Name] = s
		nodes, all = append(nodes, s.Node), append(all, plan.ActivateEarlier(s.Node, o.Options))
	}
	cluster, err := d.observer(d.Fleet.Hive(), func(name string) activate.Node { return byNode[name].From }, o.Drain).Observe(ctx)
	if err != nil {
		var results []rollout.Result
		for _, n := range nodes {
			results = append(results, rollout.NewResult(n, "", state.Skipped, "", err))
			d.report(results[len(results)-1])
		}
		return results, err
	}
	cluster = cluster.WithLeaving()
	x := rollout.Rollout{Cluster: cluster, Parallel: o.Parallel, Done: d.report}
	results, err := x.Execute(ctx, plan.Decide(all, nil, cluster.Cluster, o.Options), func(ctx context.Context, n plan.Node, _ func(context.Context)) rollout.Result {
		return change(ctx, byNode[n.Node.Name])
	})
	return results, errors.Join(err, cluster.UncordonReturned(ctx, nodes))
}

// observer returns an observer of the running cluster. If an engine does not answer, the observer starts systemd units of the
// engine that are down.
func (d *Deployer) observer(hive *nixeval.Hive, observed func(node string) activate.Node, o engine.DrainOptions) rollout.Observer {
	return rollout.Observer{Engines: d.Engines, Fleet: d.Fleet, Hive: hive, Store: d.Store, Observed: observed, MayStart: true, Drain: o, Send: d.Send}
}
