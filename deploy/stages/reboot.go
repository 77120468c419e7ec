package stages

import (
	"context"
	"errors"
	"maps"
	"strings"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// rebootNode reboots the node of a step, waits until it has booted, calls finish with the state of the node, which uploads its keys, and
// waits until its health checks pass.
func (d *Deployer) rebootNode(ctx context.Context, s Step, o Options, finish func(activate.Node) error) rollout.Result {
	after, text, err := d.Reboot(ctx, s.Node, s.From.BootID, o.RebootTimeout)
	if err == nil {
		err = finish(after)
	}
	if err == nil {
		err = d.CheckHealth(ctx, s.Node, o.Options.Options, "it has rebooted")
	}
	r := rollout.NewResult(s.Node, after.Booted, node.Rebooted, text, err)
	if r.After = after.GenerationOf(after.Booted); err != nil {
		r.Outcome, r.Text = state.Failed, ""
	}
	return r
}

// UploadVolatileKeys uploads the keys of a booted node that are in /run, because the boot has deleted them. It uploads none to a node
// that nixbench has not deployed, and removes none.
func (d *Deployer) UploadVolatileKeys(ctx context.Context, n nixeval.Node) (err error) {
	defer func() { err = fleet.NewNodeError(n.Name, event.Keys, err) }()
	deployment, err := d.Machines.NodeDeployment(n, d.Store)
	if err != nil {
		return err
	}
	deployment.Keys = maps.Clone(deployment.Keys)
	maps.DeleteFunc(deployment.Keys, func(_ string, k nixeval.Key) bool { return !strings.HasPrefix(k.PathOnNode(), "/run/") })
	if len(deployment.Keys) == 0 || d.Store.Node(n.Name).LastConfirmed == nil {
		return nil
	}
	set, err := d.Uploader.Load(ctx, n.Name, deployment, secrets.All)
	if err != nil {
		return err
	}
	d.Fleet.Drop(n.Name) // close the connection to the system that ran before the boot
	h, err := d.Fleet.Host(ctx, n)
	if err != nil {
		return err
	}
	set.KeepOld, set.Restart = true, true
	_, err = d.Uploader.Upload(ctx, h, set)
	return err
}

// rebootDeployed reboots nodes that this run has deployed without an error, and returns their new results. It does not reboot a
// node that has booted the system of its profile and still runs this system. Cluster members are drained before. Keys are uploaded
// again after the reboot, because a reboot deletes the keys in /run.
func rebootDeployed(ctx context.Context, r *run, results []rollout.Result) ([]rollout.Result, error) {
	byNode := map[string]rollout.Result{}
	var deployed []nixeval.Node
	for _, result := range results {
		if result.Task != nil && result.Err == nil {
			byNode[result.Node.Name], deployed = result, append(deployed, result.Node)
		}
	}
	var steps []Step
	var failed []rollout.Result
	var errs []error
	for _, o := range fleet.Each(ctx, deployed, r.Parallel, r.Inspect) {
		switch n := o.Value; {
		case o.Err != nil:
			result := byNode[o.Node.Name]
			result.Outcome, result.Text, result.Err = state.Failed, "", o.Err
			r.report(result)
			failed, errs = append(failed, result), append(errs, o.Err)
		case n.Profile != "" && (n.Booted != n.Profile || n.Current != n.Profile): // the node has not booted the system of its profile, or has switched to another system since
			steps = append(steps, Step{Node: o.Node, From: n, Reboot: true})
		}
	}
	if len(steps) == 0 {
		return failed, errors.Join(errs...)
	}
	o := r.Options
	o.Goal = node.Switch
	rebooted, err := r.update(ctx, steps, o, func(ctx context.Context, s Step) rollout.Result {
		deployed := byNode[s.Node.Name]
		result := r.rebootNode(ctx, s, o, func(after activate.Node) error {
			t := *deployed.Task
			if t.Observed, t.Unchanged = after, true; after.Current != t.Closure.Out {
				return activate.NewWrongBootError(s.Node.Name, t.Closure.Out, after.Current)
			}
			_, err := r.Deploy(ctx, t, o.Options.Options) // records the deployment as confirmed, because the node already runs the system
			return err
		})
		result.Before = deployed.Before
		return result
	})
	return append(failed, rebooted...), errors.Join(append(errs, err)...)
}
