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
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Goal is the last step that apply carries out. Four of the goals are [activate.Goal]s.
type Goal string

const (
	Switch      = Goal(activate.Switch)
	Boot        = Goal(activate.Boot)
	Test        = Goal(activate.Test)
	DryActivate = Goal(activate.DryActivate)
	Push        = Goal("push")        // build and copy, without activation
	UploadKeys  = Goal("upload-keys") // upload only the keys; no system is evaluated
)

// activates reports whether the goal activates a system or makes it the boot default.
func (g Goal) activates() bool { return g == Switch || g == Boot || g == Test }

// Options say how to apply.
type Options struct {
	Goal           Goal
	Parallel       int        // maximum number of nodes at once; 0: all
	MaxUnavailable plan.Share // nodes that may change in one wave
	KeepGoing      bool       // deploy the other nodes if some cannot be evaluated or built

	Confirm        time.Duration // time to confirm before the node rolls back; 0: the rollback is not armed
	SettleTime     time.Duration // see activate.Request
	RollbackAll    bool          // one failure rolls back the whole run
	Specialisation string
	ActivateWith   string // "" or activate.NixosRebuild
	ReplaceUnknown bool   // overrides replaceUnknownProfiles of the hive
	BuildOnTarget  *bool  // overrides the hive
	WithoutKeys    bool

	WithoutDrain bool // change members of a running cluster without draining them
	Drain        engine.DrainOptions
	CheckTimeout time.Duration // how long the cluster may take to become healthy; 0: it is not checked
	Partial      bool          // only some of the hive's nodes are selected, so no machine is removed
	Recreate     bool          // recreate machines whose image differs
	BootTimeout  time.Duration // how long a machine may take to become ready; 0: a default for its kind
}

// UsesKeys reports whether deployment.keys are uploaded.
func (o Options) UsesKeys() bool {
	return !o.WithoutKeys && o.Goal != Push && o.Goal != DryActivate
}

// Deployer holds what a run needs: the evaluator, connections to nodes, state, and engines.
type Deployer struct {
	Eval      *nixeval.Evaluator
	Fleet     *Fleet
	Copier    *closure.Copier
	Uploader  *secrets.Uploader
	Activator *activate.Activator
	Store     *state.Store
	Record    *state.Recorder
	Keep      func(map[string]nixeval.Closure) error // adds garbage collector roots for closures that were built
	Engines   Engines                                // nil: nodes are deployed without inspecting their cluster
	Machines  *Machines                              // nil: no machines are booted
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
	machines, err := r.startProvisioning(ctx, nodes)
	r.machines = machines
	defer machines.finish()
	if err != nil {
		r.skipAll(nodes, err)
		return err
	}
	inspected := r.inspectNodes(ctx, nodes, machines)
	closures, buildErr := r.buildIfVersionAllowed(ctx, nodes, inspected)
	if buildErr != nil && (!o.KeepGoing || isVersionRefused(buildErr) || ctx.Err() != nil) {
		machines.abandonWaits()
		inspected.waitAll()
		r.skipAll(nodes, buildErr)
		return errors.Join(buildErr, machines.creationErrors())
	}
	d.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Deploy, Total: len(nodes)})
	cluster, err := r.observeClusterBeforeDeploy(ctx, closures, inspected)
	switch {
	case err != nil:
		inspected.waitAll()
		r.skipAll(nodes, err)
	case o.MaxUnavailable.Of(len(nodes)) == len(nodes) && len(cluster.members) == 0:
		err = r.deployAtOnce(ctx, cluster, nodes, closures, inspected)
	default:
		todo, sortErr := r.makeTasks(ctx, nodes, closures, inspected)
		if err = r.checkRunDrains(ctx, cluster, todo); err != nil {
			for _, t := range todo {
				r.recordOutcome(t.node, t.closure, state.Skipped, "skipped: members cannot be drained", nil)
			}
			err = errors.Join(sortErr, err)
			break
		}
		err = errors.Join(sortErr, r.deployWaves(ctx, cluster, todo))
	}
	r.retryAdmissions(ctx, cluster)
	switch {
	case !o.RollbackAll || !o.Goal.activates() || ctx.Err() != nil:
	case err != nil:
		err = errors.Join(err, r.restoreNodes(ctx, cluster))
	default:
		err = r.dropKeyBackups(ctx)
	}
	d.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Deploy, Total: len(nodes), Failed: err != nil, Text: r.summary()})
	if err == nil && buildErr == nil {
		err = r.removeObsolete(ctx, machines, cluster)
	}
	if err == nil && buildErr == nil {
		err = r.verifyCluster(ctx, cluster, nodes, NodeConditions(r.Fleet, nodes, r.Parallel, r.observed, r.Send))
	}
	return errors.Join(buildErr, err)
}

// run is the state of one call of Apply.
type run struct {
	*Deployer
	Options
	hive     *nixeval.Hive
	machines *machineSet
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
func (r *run) inspectNodes(ctx context.Context, nodes []nixeval.Node, machines *machineSet) inspections {
	all := make(inspections, len(nodes))
	ready := make(map[string]<-chan struct{}, len(nodes))
	for _, n := range nodes {
		all[n.Name] = &inspection{done: make(chan struct{})}
		ready[n.Name] = machines.readyChannel(n.Name)
	}
	go func() {
		for _, o := range EachReady(ctx, nodes, ready, r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
			inspection := all[n.Name]
			if inspection.err = machines.waitReady(n.Name); inspection.err == nil {
				inspection.observed, inspection.err = r.inspectNode(ctx, n)
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

func (r *run) inspectNode(ctx context.Context, n nixeval.Node) (activate.Node, error) {
	r.Send.Send(event.Event{Kind: event.NodeStart, Phase: event.Connect, Node: n.Name})
	h, err := r.Fleet.Host(ctx, n)
	if err == nil && r.Store.State().Rebooting(n.Name) != nil {
		if err = r.waitForPreviousReboot(ctx, n.Name, h); err == nil {
			h, err = r.Fleet.Host(ctx, n)
		}
	}
	var observed activate.Node
	if err == nil {
		observed, err = r.Activator.Inspect(ctx, n.Name, h)
		err = inspectError(n.Name, err)
	}
	r.Send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Connect, Node: n.Name, Failed: err != nil})
	return observed, err
}

// makeClosures evaluates and builds the systems. Units that are built on their nodes are
// only evaluated.
func (r *run) makeClosures(ctx context.Context, nodes []nixeval.Node) (map[string]nixeval.Closure, error) {
	if r.Goal == UploadKeys {
		return nil, nil
	}
	all, evalErr := Instantiate(ctx, r.Eval, r.hive, nodes, r.KeepGoing)
	if len(all) == 0 || evalErr != nil && !r.KeepGoing {
		return nil, evalErr
	}
	here := map[string]nixeval.Closure{}
	for unit, c := range all {
		if !r.buildsOnTarget(unit) {
			here[unit] = c
		}
	}
	var buildErr error
	if len(here) > 0 {
		var built []string
		built, buildErr = r.Eval.Build(ctx, here, buildersFile(r.hive))
		for unit := range here {
			if !slices.Contains(built, unit) {
				delete(all, unit)
				delete(here, unit)
			}
		}
		wait := r.Send.Wait(event.Event{Phase: event.Build, Text: "Nix, to keep what was built from its garbage collector"})
		err := r.Keep(here)
		wait.End()
		if err != nil {
			return nil, errors.Join(evalErr, buildErr, err)
		}
	}
	return all, errors.Join(evalErr, buildErr)
}

func (r *run) buildsOnTarget(unit string) bool {
	if r.BuildOnTarget != nil {
		return *r.BuildOnTarget
	}
	return r.hive.Unit(unit).Deployment.BuildOnTarget
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
func (r *run) deployAtOnce(ctx context.Context, cluster clusterState, nodes []nixeval.Node, closures map[string]nixeval.Closure, inspected inspections) error {
	var errs []error
	for _, o := range EachReady(ctx, nodes, inspected.doneChannels(), r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
		t, err := r.newTask(ctx, n, closures, inspected[n.Name])
		if t != nil {
			err = r.deployInCluster(ctx, cluster, *t)
		}
		return struct{}{}, err
	}) {
		r.recordNotBegun(o.Node, o.Err)
		errs = append(errs, o.Err)
	}
	inspected.waitAll() // after a cancellation, EachReady may return before all inspections have ended
	return errors.Join(errs...)
}

func buildersFile(hive *nixeval.Hive) string {
	if f := hive.Meta.MachinesFile; f != nil {
		return *f
	}
	return ""
}

// NodeError is the failure of one node in one step.
type NodeError struct {
	Node string
	Step event.Phase
	Err  error
}

func (e *NodeError) Error() string { return failure.Message(e) }
func (e *NodeError) Unwrap() error { return e.Err }

// OnNode implements [failure.OnNode].
func (e *NodeError) OnNode() (node, text string) { return e.Node, failure.TextOn(e.Node, e.Err) }

// Kind implements [failure.Classified].
func (e *NodeError) Kind() failure.Kind {
	switch e.Step {
	case event.Connect:
		return failure.Unreachable
	case event.Copy, event.Keys:
		return failure.Copy
	}
	return failure.Activation
}
