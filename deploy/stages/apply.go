package stages

import (
	"context"
	"errors"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/closure"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
	"github.com/nixbench/nixbench/nixeval"
)

// Options are the options of Apply.
type Options struct {
	plan.Options
	Parallel      int   // maximum number of nodes at once; 0: all
	KeepGoing     bool  // deploy the other nodes if some cannot be evaluated or built
	BuildOnTarget *bool // overrides the hive's deployment.buildOnTarget; nil: not overridden

	Drain        engine.DrainOptions
	CheckTimeout time.Duration // maximum time until the cluster is healthy; 0: the cluster is not checked
	Partial      bool          // only some of the hive's nodes are selected, so no machine is removed
	Recreate     bool          // recreate machines whose image differs from the hive's
	BootTimeout  time.Duration // maximum time until a machine is ready; 0: a default for the kind of machine

	// Plan is the plan to execute; nil: Apply evaluates the systems. Apply uses the systems of the plan if a new evaluation would
	// see the same facts. Otherwise, Apply evaluates the hive again. If the plan was read from a file, the new systems must then
	// be the same as in the plan.
	Plan *Plan

	Units bool // for Preview: also compute which systemd units change; this copies the closures, because a program of the new system computes it

	RebootNodes   bool          // reboot the deployed nodes that have not booted the system of their profile
	RebootTimeout time.Duration // maximum time until a node has booted
}

// Deployer carries out the commands that change nodes and machines. It holds the evaluator, the connections to
// nodes, the state and the engines.
type Deployer struct {
	Eval      *nixeval.Evaluator
	Fleet     *fleet.Fleet
	Copier    *closure.Copier
	Uploader  *secrets.Uploader
	Activator *activate.Activator
	Store     *state.Store
	Record    *runs.Recorder
	Keep      func(map[string]nixeval.Closure) error // adds garbage collector roots for closures that were built
	Engines   rollout.Engines                        // nil: nodes are deployed without inspecting their cluster
	Machines  *machine.Manager                       // nil: no machines are booted
	Send      event.Sink
}

// Apply evaluates, builds and deploys nodes. The record of the run contains the result of each node; the
// returned error joins all failures.
//
// Missing machines boot during evaluation and build, because the evaluation needs only their addresses. A node waits only for its
// own machine and its own system: the node is inspected, and its system is copied, while other systems are still being evaluated
// or built. Nothing else is changed on any node before all systems are built and the plan is decided. A run without waves does not
// wait for a node that does not answer, unless the node that does not answer may be a member of the running cluster.
func (d *Deployer) Apply(ctx context.Context, hive *nixeval.Hive, nodes []nixeval.Node, o Options) error {
	r := &run{deployment: deployment{d, o, hive, nodes}, slots: rollout.NewSlots(o.Parallel)}
	r.systems = newSystems(r.deployment)
	set, facts, err := r.startMachines(ctx)
	r.machines = set
	defer set.Finish()
	if err != nil {
		d.recordSkipped(nodes, err)
		return err
	}
	prepared := r.prepareNodes(ctx)
	defer prepared.stop()
	closures, buildErr := r.buildIfVersionAllowed(ctx, r.Eval.WithFacts(facts), prepared)
	if buildErr != nil && (!o.KeepGoing || rollout.IsVersionRefused(buildErr) || ctx.Err() != nil) {
		prepared.stopCopies()
		set.AbandonWaits()
		prepared.stop()
		d.recordSkipped(nodes, buildErr)
		return errors.Join(buildErr, set.CreationErrors())
	}
	r.changes = newSystemChanges(ctx, r.deployment)
	results, cluster, err := r.deploy(ctx, closures, prepared)
	if err == nil && buildErr == nil {
		err = r.removeObsoleteAndVerify(ctx, results, cluster)
	} else {
		err = errors.Join(err, cluster.UncordonRemaining(ctx))
	}
	return errors.Join(buildErr, err, r.changes.record(d.Record, results))
}

// deployment contains the nodes to deploy, the options, and the Deployer with the connections and the state.
type deployment struct {
	*Deployer
	Options
	hive  *nixeval.Hive
	nodes []nixeval.Node
}

// nodeOptions returns the options for the change of a single node.
func (d deployment) nodeOptions() node.Options { return d.Options.Options.Options }

// run is one call of Apply.
type run struct {
	deployment
	machines *machine.Set
	systems  *systems
	slots    rollout.Slots // limits how many nodes are copied to or changed at once
	changes  *systemChanges
}

// deploy decides the plan and executes it. With --rollback-all-on-failure, it restores all changed nodes if the deployment of a
// node fails.
func (r *run) deploy(ctx context.Context, closures map[string]nixeval.Closure, prepared *preparations) ([]rollout.Result, rollout.Cluster, error) {
	r.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Deploy, Total: len(r.nodes)})
	r.systems.finish(closures)
	var results []rollout.Result
	cluster, err := r.observeCluster(ctx, closures, prepared)
	x := &rollout.Rollout{Cluster: cluster, Ready: prepared.ready(), Parallel: r.Parallel, Slots: r.slots, Done: r.report}
	if err != nil {
		prepared.waitInspected()
		r.recordSkipped(r.nodes, err)
	} else {
		results, err = r.execute(ctx, x, closures, prepared)
		prepared.stop() // after the failure of a wave, systems are still being copied to the nodes of later waves, which do not change
	}
	x.RetryAdmissions(ctx)
	if r.RebootNodes && ctx.Err() == nil {
		rebooted, rebootErr := r.rebootDeployed(ctx, results)
		results, err = replaceResults(results, rebooted), errors.Join(err, rebootErr)
	}
	switch {
	case !r.RollbackAll || !r.Goal.Activates() || ctx.Err() != nil:
	case err != nil:
		restored, restoreErr := r.restoreChanged(ctx, x, results)
		results, err = replaceResults(results, restored), errors.Join(err, restoreErr)
	default:
		err = r.dropKeyBackups(ctx, results)
	}
	if err != nil {
		err = errors.Join(err, cluster.UncordonLeaving(ctx))
	}
	err = errors.Join(err, r.uncordonReturned(ctx, r.nodes))
	r.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Deploy, Total: len(r.nodes), Failed: err != nil, Text: formatCounts(results, r.Goal)})
	return results, cluster, err
}

// execute decides what the run does to the nodes, and does it. If all nodes may change at the same time, each node is changed when
// its own preparation has ended. No node then depends on the plan of another node, and a node that does not answer delays only
// itself. Otherwise, execute first waits for the inspections of all nodes, because the order of the waves depends on which nodes
// will change.
func (r *run) execute(ctx context.Context, x *rollout.Rollout, closures map[string]nixeval.Closure, prepared *preparations) ([]rollout.Result, error) {
	change := func(ctx context.Context, nodes []nixeval.Node, removed []string) ([]rollout.Result, error) {
		var all []plan.Node
		tasks := map[string]node.Task{}
		for _, n := range nodes {
			c, built := closures[n.Unit]
			decided, task := r.newTask(ctx, n, c, built, prepared.byNode[n.Name])
			all, tasks[n.Name] = append(all, decided), task
		}
		p := plan.Decide(all, removed, x.Cluster.Observed(), r.Options.Options)
		return x.Execute(ctx, p, func(ctx context.Context, n plan.Node, afterLogin func(context.Context)) rollout.Result {
			t := tasks[n.Node.Name]
			t.AfterLogin, t.Transferred = afterLogin, t.Closure.Out != "" && prepared.byNode[n.Node.Name].copied == t.Closure.Out
			return r.changeNode(ctx, n, t)
		})
	}
	if r.MaxUnavailable.Of(len(r.nodes)) < len(r.nodes) || x.Cluster.Running() || x.Cluster.HasLeaving() {
		return change(ctx, r.nodes, r.machines.RemovedNodes())
	}
	var results []rollout.Result
	var errs []error
	for _, o := range fleet.EachReady(ctx, r.nodes, x.Ready, r.Parallel, func(ctx context.Context, n nixeval.Node) ([]rollout.Result, error) {
		return change(ctx, []nixeval.Node{n}, nil)
	}) {
		if len(o.Value) == 0 { // the run was cancelled before
			o.Value = []rollout.Result{rollout.NewResult(o.Node, "", state.Skipped, "skipped: not started", nil)}
			r.report(o.Value[0])
		}
		results, errs = append(results, o.Value...), append(errs, o.Err)
	}
	return results, errors.Join(errs...)
}

// changeNode changes one node in its turn. If the change of the node's machine was deferred to this turn, it changes the machine
// first. Then it deploys the node.
func (r *run) changeNode(ctx context.Context, n plan.Node, t node.Task) rollout.Result {
	if n.Restarts() {
		var err error
		if t, err = r.changeMachine(ctx, n); err != nil {
			return rollout.NewResult(n.Node, n.Closure.Out, state.Failed, "", err)
		}
	}
	done, err := r.nodeChanger().Deploy(ctx, t, r.nodeOptions())
	result := rollout.NewResult(t.Node, t.Closure.Out, done.Outcome, done.Text, err)
	result.Task, result.Activation = &t, done.Activation
	if a := done.Activation; a != nil {
		result.Before, result.After = node.GenerationOf(a.Before, a.Before.Current), done.After()
	}
	return result
}

// removeObsoleteAndVerify removes the machines of nodes that are no longer in the hive, and then waits until the cluster is
// healthy.
func (r *run) removeObsoleteAndVerify(ctx context.Context, results []rollout.Result, cluster rollout.Cluster) error {
	if err := r.removeObsoleteMachines(ctx, cluster); err != nil || !r.Goal.ActivatesNow() && !r.RebootNodes {
		return err
	}
	before := map[string]activate.Node{}
	for _, result := range results {
		if result.Task != nil {
			before[result.Node.Name] = result.Task.Observed
		}
	}
	conditions := inspect.NodeConditions(r.Fleet, r.nodes, r.Parallel, before, r.Send)
	return cluster.Verify(ctx, r.hive, r.nodes, r.Parallel, conditions, r.CheckTimeout)
}

// nodeChanger returns a Changer with the connections and the state of the Deployer.
func (d *Deployer) nodeChanger() *node.Changer {
	return &node.Changer{Fleet: d.Fleet, Copier: d.Copier, Uploader: d.Uploader, Activator: d.Activator, Store: d.Store, RunID: d.Record.ID(), Send: d.Send}
}
