package deploy

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
	"github.com/nixbench/nixbench/deploy/machines"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Options say how to apply.
type Options struct {
	node.Options
	Parallel       int             // maximum number of nodes at once; 0: all
	MaxUnavailable selection.Share // nodes that may change in one wave
	KeepGoing      bool            // deploy the other nodes if some cannot be evaluated or built
	BuildOnTarget  *bool           // overrides the hive

	WithoutDrain bool // change members of a running cluster without draining them
	Drain        engine.DrainOptions
	CheckTimeout time.Duration // how long the cluster may take to become healthy; 0: it is not checked
	Partial      bool          // only some of the hive's nodes are selected, so no machine is removed
	Recreate     bool          // recreate machines whose image differs
	BootTimeout  time.Duration // how long a machine may take to become ready; 0: a default for its kind
}

// UsesKeys reports whether deployment.keys are uploaded.
func (o Options) UsesKeys() bool {
	return !o.WithoutKeys && o.Goal != node.Push && o.Goal != node.DryActivate
}

// Deployer holds what a run needs: the evaluator, connections to nodes, state, and engines.
type Deployer struct {
	Eval      *nixeval.Evaluator
	Fleet     *fleet.Fleet
	Copier    *closure.Copier
	Uploader  *secrets.Uploader
	Activator *activate.Activator
	Store     *state.Store
	Record    *state.Recorder
	Keep      func(map[string]nixeval.Closure) error // adds garbage collector roots for closures that were built
	Engines   rollout.Engines                        // nil: nodes are deployed without inspecting their cluster
	Machines  *machines.Manager                      // nil: no machines are booted
	Send      event.Sink
}

// Apply evaluates, builds and deploys nodes. The record of the run contains the result of
// each node; the returned error joins all failures.
//
// Missing machines are booted first. They boot during evaluation and build, because their
// addresses are known before. A node waits only for its own machine.
//
// Nodes are inspected during evaluation and build, because an inspection changes nothing.
// No node is changed before all systems are built. Without waves, no node waits for
// another node that does not answer, unless that one may be a member of the running cluster.
func (d *Deployer) Apply(ctx context.Context, hive *nixeval.Hive, nodes []nixeval.Node, o Options) error {
	r := &run{Deployer: d, hive: hive, Options: o, observed: map[string]activate.Node{}}
	set, facts, err := r.startMachines(ctx, nodes)
	r.machines = set
	defer set.Finish()
	if err != nil {
		r.recordAllSkipped(nodes, err)
		return err
	}
	inspected := r.inspectNodes(ctx, nodes, set)
	closures, buildErr := r.buildIfVersionAllowed(ctx, r.Eval.WithFacts(facts), nodes, inspected)
	if buildErr != nil && (!o.KeepGoing || rollout.IsVersionRefused(buildErr) || ctx.Err() != nil) {
		set.AbandonWaits()
		inspected.waitAll()
		r.recordAllSkipped(nodes, buildErr)
		return errors.Join(buildErr, set.CreationErrors())
	}
	cluster, err := r.runDeployPhase(ctx, nodes, closures, inspected)
	if err == nil && buildErr == nil {
		err = r.removeObsoleteAndVerify(ctx, nodes, set, cluster)
	}
	return errors.Join(buildErr, err)
}

// runDeployPhase deploys the nodes: wave by wave in a running cluster, otherwise each as soon as it is ready. With
// --rollback-all-on-failure, it restores all nodes if one of them fails.
func (r *run) runDeployPhase(ctx context.Context, nodes []nixeval.Node, closures map[string]nixeval.Closure, inspected inspections) (rollout.Cluster, error) {
	r.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Deploy, Total: len(nodes)})
	cluster, err := r.observeClusterBeforeDeploy(ctx, closures, inspected)
	switch {
	case err != nil:
		inspected.waitAll()
		r.recordAllSkipped(nodes, err)
	case r.MaxUnavailable.Of(len(nodes)) == len(nodes) && !cluster.Running():
		err = r.deployAtOnce(ctx, cluster, nodes, closures, inspected)
	default:
		err = r.prepareAndDeployWaves(ctx, cluster, nodes, closures, inspected)
	}
	r.retryAdmissions(ctx, cluster)
	switch {
	case !r.RollbackAll || !r.Goal.Activates() || ctx.Err() != nil:
	case err != nil:
		err = errors.Join(err, r.restoreNodes(ctx, cluster))
	default:
		err = r.dropKeyBackups(ctx)
	}
	r.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Deploy, Total: len(nodes), Failed: err != nil, Text: r.formatRunSummary()})
	return cluster, err
}

// prepareAndDeployWaves decides what to do on every node, checks all drains, and deploys wave by wave.
func (r *run) prepareAndDeployWaves(ctx context.Context, cluster rollout.Cluster, nodes []nixeval.Node, closures map[string]nixeval.Closure, inspected inspections) error {
	tasks, err := r.makeTasks(ctx, nodes, closures, inspected)
	if drainErr := r.checkRunDrains(ctx, cluster, tasks); drainErr != nil {
		for _, t := range tasks {
			r.recordOutcome(t.Node, t.Closure, state.Skipped, "skipped: members cannot be drained", nil)
		}
		return errors.Join(err, drainErr)
	}
	return errors.Join(err, r.deployWaves(ctx, cluster, tasks))
}

// removeObsoleteAndVerify removes machines that the hive no longer has, and verifies the cluster.
func (r *run) removeObsoleteAndVerify(ctx context.Context, nodes []nixeval.Node, set *machines.Set, cluster rollout.Cluster) error {
	if err := r.removeObsoleteMachines(ctx, set, cluster); err != nil || !r.Goal.ActivatesNow() {
		return err
	}
	conditions := inspect.NodeConditions(r.Fleet, nodes, r.Parallel, r.observed, r.Send)
	return cluster.Verify(ctx, r.hive, nodes, r.Parallel, conditions, r.CheckTimeout)
}

// nodeChanger returns what changes one node.
func (d *Deployer) nodeChanger() *node.Changer {
	return &node.Changer{Fleet: d.Fleet, Copier: d.Copier, Uploader: d.Uploader, Activator: d.Activator, Store: d.Store, RunID: d.Record.ID(), Send: d.Send}
}

// run is the state of one call of Apply.
type run struct {
	*Deployer
	Options
	hive     *nixeval.Hive
	machines *machines.Set
	nodeResults
	observed map[string]activate.Node // nodes as they were inspected before this run changed them
}

// inspections has the inspection of each node by name. An inspection may still be in progress.
type inspections map[string]*inspection

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

// inspectNodes starts to inspect every node as soon as its machine is ready. It does not wait.
func (r *run) inspectNodes(ctx context.Context, nodes []nixeval.Node, set *machines.Set) inspections {
	all := make(inspections, len(nodes))
	ready := make(map[string]<-chan struct{}, len(nodes))
	for _, n := range nodes {
		all[n.Name] = &inspection{done: make(chan struct{})}
		ready[n.Name] = set.ReadyChannel(n.Name)
	}
	go func() {
		for _, o := range fleet.EachReady(ctx, nodes, ready, r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
			inspection := all[n.Name]
			if inspection.err = set.WaitReady(n.Name); inspection.err == nil {
				inspection.observed, inspection.err = r.nodeChanger().Inspect(ctx, n)
			}
			close(inspection.done)
			return struct{}{}, nil
		}) {
			if o.Err != nil { // cancelled before the inspection started
				all[o.Node.Name].err = o.Err
				close(all[o.Node.Name].done)
			}
		}
	}()
	return all
}

// doneChannels returns for each node the channel that is closed when its inspection has ended.
func (l inspections) doneChannels() map[string]<-chan struct{} {
	out := map[string]<-chan struct{}{}
	for name, inspection := range l {
		out[name] = inspection.done
	}
	return out
}

// makeTasks makes the tasks of all nodes. It records the result of nodes that need none:
// they cannot be reached, or there is nothing to deploy.
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

// deployAtOnce deploys every node as soon as it has been inspected. It is for a run with a
// single wave and no members. Several waves are ordered by which nodes will change, so they
// need the inspections of all nodes. With one wave, waiting for all inspections would only
// delay the other nodes when one node does not answer.
func (r *run) deployAtOnce(ctx context.Context, cluster rollout.Cluster, nodes []nixeval.Node, closures map[string]nixeval.Closure, inspected inspections) error {
	var errs []error
	for _, o := range fleet.EachReady(ctx, nodes, inspected.doneChannels(), r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
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

// nodeOptions says how systems get onto nodes in this run.
func (r *run) nodeOptions() node.Options { return r.Options.Options }

// deployNode deploys one node, and records its result.
func (r *run) deployNode(ctx context.Context, t task) error {
	result, err := r.nodeChanger().Deploy(ctx, t.Task, r.nodeOptions())
	if result.Activation != nil {
		r.recordActivation(t.Node, *result.Activation)
	}
	r.recordOutcome(t.Node, t.Closure, result.Outcome, result.Text, err)
	return err
}

// dropKeyBackups removes the key backups that nodes kept in case the whole run is rolled back.
func (r *run) dropKeyBackups(ctx context.Context) error {
	if r.WithoutKeys {
		return nil
	}
	var errs []error
	for _, o := range fleet.Each(ctx, r.changedNodes(), r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
		return struct{}{}, r.nodeChanger().DropKeyBackup(ctx, n)
	}) {
		errs = append(errs, o.Err)
	}
	return errors.Join(errs...)
}
