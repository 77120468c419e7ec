package deploy

import (
	"context"
	"errors"
	"slices"
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

	// Plan is the plan to execute; nil: Apply evaluates the systems. Its systems are used if the evaluation would see the same
	// facts. Otherwise, Apply evaluates the hive again; if the plan is that of a file, the hive must still have its systems.
	Plan *Plan

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
// Missing machines boot during evaluation and build, because the evaluation needs only their addresses. A node
// waits only for its own machine.
//
// Nodes are inspected during evaluation and build, because an inspection changes nothing. Systems that are built are
// copied while others are still being evaluated or built, see earlyCopies. Nothing else is changed on any node before
// all systems are built. A run without waves does not wait for a node that does not answer, unless that
// node may be a member of the running cluster.
func (d *Deployer) Apply(ctx context.Context, hive *nixeval.Hive, nodes []nixeval.Node, o Options) error {
	r := &run{Deployer: d, hive: hive, Options: o, results: results{report: d.reportResult, record: d.Record, goal: o.Goal}}
	set, facts, err := r.startMachines(ctx, nodes)
	r.machines = set
	defer set.Finish()
	if err != nil {
		r.recordAllSkipped(nodes, err)
		return err
	}
	inspected := r.inspectNodes(ctx, nodes, set)
	r.early = r.newEarlyCopies(ctx, nodes, inspected)
	defer r.early.stop()
	closures, buildErr := r.buildIfVersionAllowed(ctx, r.Eval.WithFacts(facts), nodes, inspected)
	r.early.close()
	if buildErr != nil && (!o.KeepGoing || rollout.IsVersionRefused(buildErr) || ctx.Err() != nil) {
		r.early.stop()
		set.AbandonWaits()
		inspected.waitAll()
		r.recordAllSkipped(nodes, buildErr)
		return errors.Join(buildErr, set.CreationErrors())
	}
	r.changes = r.startSystemChanges(ctx, len(nodes))
	cluster, err := r.runDeployPhase(ctx, nodes, closures, inspected)
	if err == nil && buildErr == nil {
		err = r.removeObsoleteAndVerify(ctx, nodes, set, cluster)
	} else {
		err = errors.Join(err, cluster.UncordonRemaining(ctx))
	}
	return errors.Join(buildErr, err, r.recordSystemChanges())
}

// runDeployPhase deploys the nodes: wave by wave in a running cluster or with a maximum of unavailable nodes,
// otherwise each node as soon as the node is ready. With --rollback-all-on-failure, it restores all changed
// nodes if a node fails.
func (r *run) runDeployPhase(ctx context.Context, nodes []nixeval.Node, closures map[string]nixeval.Closure, inspected inspections) (rollout.Cluster, error) {
	r.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Deploy, Total: len(nodes)})
	cluster, err := r.observeClusterBeforeDeploy(ctx, closures, inspected)
	switch {
	case err != nil:
		inspected.waitAll()
		r.recordAllSkipped(nodes, err)
	case r.MaxUnavailable.Of(len(nodes)) == len(nodes) && !cluster.Running() && !cluster.HasLeaving():
		err = r.deployAtOnce(ctx, cluster, nodes, closures, inspected)
	default:
		err = r.prepareAndDeployWaves(ctx, cluster, nodes, closures, inspected)
	}
	r.retryAdmissions(ctx, cluster)
	if r.RebootNodes && ctx.Err() == nil {
		err = errors.Join(err, r.rebootDeployed(ctx, nodes))
	}
	switch {
	case !r.RollbackAll || !r.Goal.Activates() || ctx.Err() != nil:
	case err != nil:
		err = errors.Join(err, r.restoreChangedNodes(ctx, cluster))
	default:
		err = r.dropKeyBackups(ctx)
	}
	if err != nil {
		err = errors.Join(err, cluster.UncordonLeaving(ctx))
	}
	err = errors.Join(err, r.uncordonReturned(ctx, nodes))
	r.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Deploy, Total: len(nodes), Failed: err != nil, Text: r.formatRunSummary()})
	return cluster, err
}

// prepareAndDeployWaves makes the task of every node, checks the drains of all tasks, drains the nodes that leave their
// engine or that are removed at the end of the run, and deploys the waves. If one of these drains fails or another one would be refused, it
// changes no node.
func (r *run) prepareAndDeployWaves(ctx context.Context, cluster rollout.Cluster, nodes []nixeval.Node, closures map[string]nixeval.Closure, inspected inspections) error {
	tasks, err := r.makeTasks(ctx, nodes, closures, inspected)
	drainErr := r.checkRunDrains(ctx, cluster, tasks)
	if drainErr == nil {
		drainErr = r.drainBeforeChanges(ctx, cluster, tasks)
	}
	if drainErr != nil {
		for _, t := range tasks {
			r.recordOutcome(t.Node, t.Closure, state.Skipped, "skipped: members cannot be drained", nil)
		}
		return errors.Join(err, drainErr)
	}
	return errors.Join(err, r.deployWaves(ctx, cluster, tasks))
}

// removeObsoleteAndVerify removes the machines that are no longer in the hive, and then verifies the cluster.
func (r *run) removeObsoleteAndVerify(ctx context.Context, nodes []nixeval.Node, set *machine.Set, cluster rollout.Cluster) error {
	if err := r.removeObsoleteMachines(ctx, set, cluster); err != nil || !r.Goal.ActivatesNow() && !r.RebootNodes {
		return err
	}
	conditions := inspect.NodeConditions(r.Fleet, nodes, r.Parallel, r.observed, r.Send)
	return cluster.Verify(ctx, r.hive, nodes, r.Parallel, conditions, r.CheckTimeout)
}

// nodeChanger returns a Changer with the connections and the state of the Deployer.
func (d *Deployer) nodeChanger() *node.Changer {
	return &node.Changer{Fleet: d.Fleet, Copier: d.Copier, Uploader: d.Uploader, Activator: d.Activator, Store: d.Store, RunID: d.Record.ID(), Send: d.Send}
}

// run is the state of one call of Apply.
type run struct {
	*Deployer
	Options
	hive     *nixeval.Hive
	machines *machine.Set
	early    *earlyCopies
	changes  *systemChanges
	results
}

// inspections contains the inspection of each node by node name. An inspection may still be in progress.
type inspections map[string]*inspection

// inspection is the inspection of one node. observed and err are valid once done is closed.
type inspection struct {
	done     chan struct{}
	observed activate.Node
	err      error
}

func (l inspections) waitAll() {
	for _, inspection := range l {
		<-inspection.done
	}
}

// inspectNodes starts a goroutine that inspects every node as soon as the node's machine is ready, and returns
// at once. To upload only keys, it just connects to the nodes.
func (r *run) inspectNodes(ctx context.Context, nodes []nixeval.Node, set *machine.Set) inspections {
	all := make(inspections, len(nodes))
	ready := make(map[string]<-chan struct{}, len(nodes))
	for _, n := range nodes {
		all[n.Name] = &inspection{done: make(chan struct{})}
		ready[n.Name] = set.ReadyChannel(n.Name)
	}
	go func() {
		for _, o := range fleet.EachReady(ctx, nodes, ready, r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
			inspection := all[n.Name]
			switch inspection.err = set.WaitReady(n.Name); {
			case inspection.err != nil:
			case r.Goal == node.UploadKeys: // does not depend on the node's systems
				inspection.err = r.nodeChanger().Connect(ctx, n)
			case r.mayHaveEngine():
				inspection.observed, inspection.err = r.nodeChanger().Inspect(ctx, n)
			default:
				inspection.observed, inspection.err = r.nodeChanger().InspectSystems(ctx, n)
			}
			close(inspection.done)
			return struct{}{}, nil
		}) {
			if o.Err != nil { // the run was cancelled before the inspection started
				all[o.Node.Name].err = o.Err
				close(all[o.Node.Name].done)
			}
		}
	}()
	return all
}

// mayHaveEngine reports whether an engine may verify the nodes after the run. It then compares their failed units.
func (r *run) mayHaveEngine() bool {
	if len(r.hive.Broken) > 0 {
		return true
	}
	for _, u := range r.hive.Units {
		if u.Deployment.Engine != nil {
			return true
		}
	}
	for _, n := range r.Store.State().Nodes {
		if n.Engine != "" {
			return true
		}
	}
	return false
}

// doneChannels returns for each node the channel that is closed when its inspection has ended.
func (l inspections) doneChannels() map[string]<-chan struct{} {
	out := map[string]<-chan struct{}{}
	for name, inspection := range l {
		out[name] = inspection.done
	}
	return out
}

// makeTasks returns the tasks of the nodes that can be deployed. It records the outcome of every other node:
// the node cannot be reached, was not built, or must not be changed.
func (r *run) makeTasks(ctx context.Context, nodes []nixeval.Node, closures map[string]nixeval.Closure, inspected inspections) ([]task, error) {
	var todo []task
	var errs []error
	for _, n := range nodes {
		t, err := r.newTask(ctx, n, closures, inspected[n.Name])
		if t != nil {
			todo = append(todo, *t)
		}
		errs = append(errs, err)
	}
	return todo, errors.Join(errs...)
}

// deployAtOnce deploys every node as soon as the node has been inspected. It is called if the run has a single
// wave and the cluster has no members. A run with several waves needs the inspections of all nodes, because it
// orders the waves by which nodes will change. With a single wave, waiting for a node that does not answer
// would only delay the other nodes.
func (r *run) deployAtOnce(ctx context.Context, cluster rollout.Cluster, nodes []nixeval.Node, closures map[string]nixeval.Closure, inspected inspections) error {
	var errs []error
	for _, o := range fleet.EachReady(ctx, nodes, inspected.doneChannels(), r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
		defer r.early.enter(n.Name)()
		t, err := r.newTask(ctx, n, closures, inspected[n.Name])
		if t != nil {
			err = r.deployInCluster(ctx, cluster, *t)
		}
		return struct{}{}, err
	}) {
		r.recordNotStarted(o.Node, o.Err)
		errs = append(errs, o.Err)
	}
	inspected.waitAll() // after a cancellation, EachReady may return before all inspections have ended
	return errors.Join(errs...)
}

// nodeOptions returns the options for the change of a single node.
func (r *run) nodeOptions() node.Options { return r.Options.Options.Options }

// deployNode deploys one node, and records its result.
func (r *run) deployNode(ctx context.Context, t task) error {
	t.Transferred = r.early.isCopied(t.Node.Name, t.Closure.Out)
	result, err := r.nodeChanger().Deploy(ctx, t.Task, r.nodeOptions())
	if result.Activation != nil {
		r.recordChange(t.Task, *result.Activation)
	}
	r.recordOutcome(t.Node, t.Closure, result.Outcome, result.Text, err)
	if err == nil {
		r.recordDeployed(t.Task)
	}
	return err
}

// dropKeyBackups removes the key backups that nodes kept in case the whole run is rolled back.
func (r *run) dropKeyBackups(ctx context.Context) error {
	nodes := slices.DeleteFunc(r.changedNodes(), func(n nixeval.Node) bool { return r.changeOf(n).task.Keys == nil })
	var errs []error
	for _, o := range fleet.Each(ctx, nodes, r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
		return struct{}{}, r.nodeChanger().DropKeyBackup(ctx, n)
	}) {
		errs = append(errs, o.Err)
	}
	return errors.Join(errs...)
}
