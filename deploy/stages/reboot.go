package stages

import (
	"context"
	"errors"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// RebootOptions are the options of Reboot.
type RebootOptions struct {
	RollingOptions
	Timeout  time.Duration // maximum time until a node has booted
	IfNeeded bool          // reboot only nodes that would boot another kernel than the running one
}

// Reboot reboots inspected nodes, and waits until each node has booted the system of its profile. The record of the run gets the
// result of each node.
func (d *Deployer) Reboot(ctx context.Context, inspected []fleet.Outcome[activate.Node], o RebootOptions) ([]state.NodeResult, error) {
	d.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Deploy, Total: len(inspected)})
	var todo []nixeval.Node
	observed := map[string]activate.Node{}
	var results []rollout.Result
	var errs []error
	for _, l := range inspected {
		observed[l.Node.Name] = l.Value // empty after an error
		var r rollout.Result
		switch {
		case l.Err != nil:
			r = rollout.NewResult(l.Node, l.Value.Profile, state.Failed, "", l.Err)
		case o.IfNeeded && !l.Value.RebootNeeded():
			r = rollout.NewResult(l.Node, l.Value.Profile, state.Unchanged, "needs no reboot", nil)
		default:
			todo = append(todo, l.Node)
			continue
		}
		d.report(r)
		results, errs = append(results, r), append(errs, l.Err)
	}
	rebooted, err := d.update(ctx, todo, observed, o.RollingOptions, func(ctx context.Context, n nixeval.Node) rollout.Result {
		return d.rebootNode(ctx, n, observed[n.Name].BootID, o.Timeout)
	})
	results, err = append(results, rebooted...), errors.Join(append(errs, err)...)
	d.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Deploy, Total: len(inspected), Failed: err != nil, Text: formatCounts(results, node.Switch)})
	return toNodeResults(results), err
}

// rebootNode reboots a node, and waits until the node has booted. boot is the boot id (of the Linux kernel) before the reboot.
func (d *Deployer) rebootNode(ctx context.Context, n nixeval.Node, boot string, timeout time.Duration) rollout.Result {
	done, text, err := d.nodeChanger().Reboot(ctx, n, boot, timeout)
	return rollout.Result{Node: n, NodeResult: done, Text: text, Err: err}
}

// rebootDeployed reboots nodes that this run has deployed without an error, and returns their new results. It does not reboot a
// node that has booted the system of its profile and still runs this system. Cluster members are drained before. Keys are uploaded
// again after the reboot, because a reboot deletes the keys in /run.
func (r *run) rebootDeployed(ctx context.Context, results []rollout.Result) ([]rollout.Result, error) {
	byNode := map[string]rollout.Result{}
	var deployed, todo []nixeval.Node
	for _, result := range results {
		if result.Task != nil && result.Err == nil {
			byNode[result.Node.Name], deployed = result, append(deployed, result.Node)
		}
	}
	observed := map[string]activate.Node{}
	var failed []rollout.Result
	var errs []error
	for _, o := range fleet.Each(ctx, deployed, r.Parallel, r.nodeChanger().Inspect) {
		switch n := o.Value; {
		case o.Err != nil:
			result := byNode[o.Node.Name]
			result.Outcome, result.Text, result.Err = state.Failed, "", o.Err
			r.report(result)
			failed, errs = append(failed, result), append(errs, o.Err)
		case n.Profile != "" && (n.Booted != n.Profile || n.Current != n.Profile): // the node has not booted the system of its profile, or has switched to another system since
			todo = append(todo, o.Node)
			observed[o.Node.Name] = o.Value
		}
	}
	if len(todo) == 0 {
		return failed, errors.Join(errs...)
	}
	options := RollingOptions{Parallel: r.Parallel, MaxUnavailable: r.MaxUnavailable, WithoutDrain: r.WithoutDrain, Drain: r.Drain}
	rebooted, err := r.update(ctx, todo, observed, options, func(ctx context.Context, n nixeval.Node) rollout.Result {
		return r.rebootAndVerify(ctx, byNode[n.Name], observed[n.Name].BootID)
	})
	for i, result := range rebooted {
		before := byNode[result.Node.Name]
		rebooted[i].Task, rebooted[i].Activation = before.Task, before.Activation
	}
	return append(failed, rebooted...), errors.Join(append(errs, err)...)
}

// rebootAndVerify reboots a deployed node, waits until the node has booted the system of its profile, and uploads the node's keys.
// boot is the boot id before the reboot.
func (r *run) rebootAndVerify(ctx context.Context, deployed rollout.Result, boot string) rollout.Result {
	name := deployed.Node.Name
	result := r.rebootNode(ctx, deployed.Node, boot, r.RebootTimeout)
	result.Before = deployed.Before
	if result.Err != nil {
		return result
	}
	r.Fleet.Drop(name) // close the connection to the system that ran before the reboot
	t := *deployed.Task
	t.Observed, result.Err = r.nodeChanger().Inspect(ctx, deployed.Node)
	if result.Err == nil && t.Observed.Current != t.Closure.Out {
		result.Err = &activate.RebootError{Node: name, Want: t.Closure.Out, Booted: t.Observed.Current}
	}
	if result.Err == nil {
		t.Unchanged = true
		o := r.nodeOptions()
		o.Goal = node.Switch // the node runs the system now, as after a switch: it is recorded as confirmed
		_, result.Err = r.nodeChanger().Deploy(ctx, t, o)
	}
	if result.Err != nil {
		result.Outcome, result.Text = state.Failed, ""
	}
	return result
}
