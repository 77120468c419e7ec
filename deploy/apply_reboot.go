package deploy

import (
	"context"
	"errors"
	"slices"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// rebootDeployed reboots the nodes that this run has deployed without an error, unless they have booted the
// system of their profile and still run it. Members are drained before. Keys are uploaded again after the
// reboot, because a reboot deletes the keys in /run.
func (r *run) rebootDeployed(ctx context.Context, nodes []nixeval.Node) error {
	deployed := slices.DeleteFunc(slices.Clone(nodes), func(n nixeval.Node) bool { return r.taskOf(n) == nil })
	before := map[string]activate.Node{}
	var todo []nixeval.Node
	var errs []error
	for _, o := range fleet.Each(ctx, deployed, r.Parallel, r.nodeChanger().Inspect) {
		switch {
		case o.Err != nil:
			r.recordOutcome(o.Node, r.taskOf(o.Node).Closure, state.Failed, "", o.Err)
			errs = append(errs, o.Err)
		case mustReboot(o.Value):
			todo = append(todo, o.Node)
			before[o.Node.Name] = o.Value
		}
	}
	if len(todo) == 0 {
		return errors.Join(errs...)
	}
	report := func(name string) rollout.Report { return newReport(before[name]) }
	results, err := r.rollingUpdate(ctx, todo, report, r.WithoutDrain, r.Drain, r.MaxUnavailable, r.Parallel, func(ctx context.Context, n nixeval.Node) (state.NodeResult, string, error) {
		return r.rebootNode(ctx, n, before[n.Name].BootID)
	})
	r.replaceOutcomes(results)
	return errors.Join(append(errs, err)...)
}

// mustReboot reports whether a node has to reboot to run the system of its profile as after a boot.
func mustReboot(n activate.Node) bool {
	return n.Profile != "" && (n.Booted != n.Profile || n.Current != n.Profile)
}

// rebootNode reboots a node, waits until it has booted the system of its profile, and uploads its keys. boot is
// the id of the current boot.
func (r *run) rebootNode(ctx context.Context, n nixeval.Node, boot string) (state.NodeResult, string, error) {
	changer := r.nodeChanger()
	result, text, err := changer.Reboot(ctx, n, boot, r.RebootTimeout)
	if a := r.changeOf(n).result; a != nil {
		result.Before = node.GenerationOf(a.Before, a.Before.Current)
	}
	if err != nil {
		return result, text, err
	}
	r.Fleet.Drop(n.Name) // the connection was made to the system before the reboot
	t := *r.taskOf(n)
	if t.Observed, err = changer.Inspect(ctx, n); err == nil && t.Observed.Current != t.Closure.Out {
		err = &activate.RebootError{Node: n.Name, Want: t.Closure.Out, Booted: t.Observed.Current}
	}
	if err == nil {
		t.Unchanged = true
		o := r.nodeOptions()
		o.Goal = node.Switch // the node runs the system now, as after a switch: it is recorded as confirmed
		_, err = changer.Deploy(ctx, t, o)
	}
	if err != nil {
		result.Outcome, text = state.Failed, ""
	}
	return result, text, err
}
