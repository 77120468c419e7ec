package stages

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
	"github.com/nixbench/nixbench/nixeval"
)

// Options are the options of the commands that change nodes, such as apply and rollback. Each command uses some of them.
type Options struct {
	plan.Options
	Parallel int // maximum number of nodes at once; 0: all
	Drain    engine.DrainOptions

	KeepGoing     bool          // deploy the other nodes if some cannot be evaluated or built
	BuildOnTarget *bool         // overrides the hive's deployment.buildOnTarget; nil: not overridden
	CheckTimeout  time.Duration // maximum time until the cluster is healthy; 0: the cluster is not checked
	Partial       bool          // only some of the hive's nodes are selected, so no machine is removed
	Away          []string      // nodes that may be away and are; the check of the cluster requires nothing of them
	Recreate      bool          // recreate machines whose image differs from the hive's
	BootTimeout   time.Duration // maximum time until a machine is ready; 0: a default for the kind of machine

	// Plan is the plan to execute; nil: Apply evaluates the systems. Apply uses the systems of the plan if a new evaluation would
	// see the same facts. Otherwise, Apply evaluates the hive again.
	Plan *Plan

	RebootNodes   bool          // reboot the deployed nodes that have not booted the system of their profile
	RebootTimeout time.Duration // maximum time until a node has booted
}

// Deployer carries out the commands that change nodes and machines.
type Deployer struct {
	node.Changer
	Eval     *nixeval.Evaluator
	Record   *runs.Recorder
	Keep     func(map[string]nixeval.Closure) error // adds garbage collector roots for closures that were built
	Engines  rollout.Engines                        // nil: nodes are deployed without inspecting their cluster
	Machines *machine.Manager                       // nil: no machines are booted
}

// run is one call of Apply or Preview.
type run struct {
	*Deployer
	Options
	hive     *nixeval.Hive
	nodes    []nixeval.Node
	preview  bool                       // no machine is changed, and no system is copied
	actions  map[string]*MachinePreview // of a preview: the changes of machines, by node
	removed  []Preview                  // of a preview: the nodes whose machines would be removed
	obsolete []string                   // their names
	machines *machine.Set
	systems  *systems
	slots    rollout.Slots // limits how many nodes are copied to or changed at once
}

func (d *Deployer) newRun(hive *nixeval.Hive, nodes []nixeval.Node, o Options) *run {
	r := &run{Deployer: d, Options: o, hive: hive, nodes: nodes, slots: rollout.NewSlots(o.Parallel), machines: machine.NoMachines()}
	r.systems = newSystems(r)
	return r
}

// Apply evaluates, builds and deploys nodes. The record of the run contains the result of each node; the
// returned error joins all failures.
//
// Missing machines boot during evaluation and build, because the evaluation needs only their addresses. A node waits only for its
// own machine and its own system: the node is inspected, and its system is copied, while other systems are still being evaluated
// or built. Nothing else is changed on any node before all systems are built and the plan is decided. A run without waves does not
// wait for a node that does not answer, unless the node that does not answer may be a member of the running cluster.
func (d *Deployer) Apply(ctx context.Context, hive *nixeval.Hive, nodes []nixeval.Node, o Options) error {
	r := d.newRun(hive, nodes, o)
	facts, err := r.startMachines(ctx)
	defer r.machines.Finish()
	if err != nil {
		d.recordSkipped(nodes, err)
		return err
	}
	prepared := r.prepareNodes(ctx)
	defer prepared.stop()
	buildErr := r.systems.build(ctx, r.Eval.WithFacts(facts))
	stops := buildErr != nil && (!o.KeepGoing || ctx.Err() != nil)
	if !stops && o.Goal.Activates() {
		if _, err := r.askVersions(ctx, prepared); err != nil {
			stops, buildErr = true, errors.Join(buildErr, err)
		}
	}
	if stops {
		prepared.stopCopies()
		r.machines.AbandonWaits()
		prepared.stop()
		d.recordSkipped(nodes, buildErr)
		return errors.Join(buildErr, r.machines.CreationErrors())
	}
	results, cluster, err := r.deploy(ctx, prepared)
	if err == nil && buildErr == nil {
		err = r.removeObsoleteAndVerify(ctx, results, cluster)
	} else {
		err = errors.Join(err, cluster.UncordonDrained(ctx))
	}
	return errors.Join(buildErr, err, r.recordChanges(ctx, prepared, results))
}

// deploy decides the plan and executes it. With --rollback all, it restores all changed nodes if one of them fails.
func (r *run) deploy(ctx context.Context, prepared *preparations) ([]rollout.Result, rollout.Cluster, error) {
	r.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Deploy, Total: len(r.nodes)})
	var results []rollout.Result
	cluster, err := r.observeCluster(ctx, prepared)
	x := &rollout.Rollout{Cluster: cluster, Ready: prepared.ready, Parallel: r.Parallel, Slots: r.slots, Done: r.report}
	if err != nil {
		for _, p := range prepared.byNode {
			<-p.inspected
		}
		r.recordSkipped(r.nodes, err)
	} else {
		results, err = r.execute(ctx, x, prepared)
		prepared.stop() // after the failure of a wave, systems are still being copied to the nodes of later waves, which do not change
	}
	x.RetryAdmissions(ctx)
	if r.RebootNodes && ctx.Err() == nil {
		rebooted, rebootErr := rebootDeployed(ctx, r, results)
		results, err = replaceResults(results, rebooted), errors.Join(err, rebootErr)
	}
	switch {
	case !r.RollbackAll || !r.Goal.Activates() || ctx.Err() != nil:
	case err != nil:
		restored, restoreErr := restoreChanged(ctx, r, cluster, results)
		results, err = replaceResults(results, restored), errors.Join(err, restoreErr)
	default:
		err = dropKeyBackups(ctx, r, results)
	}
	if r.Goal.Activates() {
		err = errors.Join(err, cluster.UncordonReturned(ctx, r.nodes))
	}
	r.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Deploy, Total: len(r.nodes), Failed: err != nil, Text: formatCounts(results, r.Goal)})
	return results, cluster, err
}

// execute decides what the run does to the nodes, and does it. If all nodes may change at the same time, each node is changed when its
// own preparation has ended. No node then depends on the plan of another node, and a node that does not answer delays only itself.
// Otherwise, execute first waits for the inspections of all nodes, because the order of the waves depends on which nodes will change.
func (r *run) execute(ctx context.Context, x *rollout.Rollout, prepared *preparations) ([]rollout.Result, error) {
	change := func(ctx context.Context, nodes []nixeval.Node, removed []string) ([]rollout.Result, error) {
		p := r.decidePlan(ctx, nodes, removed, x.Cluster, prepared)
		return x.Execute(ctx, p, func(ctx context.Context, n plan.Node, afterLogin func(context.Context)) rollout.Result {
			n.AfterLogin, n.Transferred = afterLogin, n.Closure.Out != "" && prepared.byNode[n.Node.Name].copied == n.Closure.Out
			return r.changeNode(ctx, n)
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

// changeNode changes one node in its turn: first its machine, if the change of the machine was deferred to this turn.
func (r *run) changeNode(ctx context.Context, n plan.Node) rollout.Result {
	if n.Restarts() {
		if n = r.changeMachine(ctx, n); n.Err != nil {
			return rollout.NewResult(n.Node, n.Closure.Out, state.Failed, "", n.Err)
		}
	}
	done, err := r.Deploy(ctx, n.Task, r.Options.Options.Options)
	result := rollout.NewResult(n.Node, n.Closure.Out, done.Outcome, done.Text, err)
	result.Task, result.Activation = &n.Task, done.Activation
	if a := done.Activation; a != nil {
		result.Before, result.After = a.Before.GenerationOf(a.Before.Current), done.After()
	}
	return result
}

// removeObsoleteAndVerify removes the machines of nodes that the hive no longer has, and waits until the cluster is healthy.
func (r *run) removeObsoleteAndVerify(ctx context.Context, results []rollout.Result, cluster rollout.Cluster) error {
	if err := r.removeObsoleteMachines(ctx, cluster); err != nil || !r.Goal.ActivatesNow() && !r.RebootNodes {
		return err
	}
	before, running := map[string]activate.Node{}, slices.Clone(r.nodes) // the health checks are those of the deployed system
	for _, result := range results {
		if a := result.Activation; a != nil && a.OnlyBoots() && !r.RebootNodes {
			running = slices.DeleteFunc(running, func(n nixeval.Node) bool { return n.Name == result.Node.Name })
		}
		if result.Task != nil {
			before[result.Node.Name] = result.Task.Observed
		}
	}
	var health []check.Condition
	if !r.WithoutHealthChecks {
		health = inspect.HealthConditions(r.Fleet, running, r.Parallel)
	}
	conditions := inspect.NodeConditions(r.Fleet, r.nodes, r.Parallel, before, r.Send)
	return cluster.Verify(ctx, r.hive, r.nodes, r.Parallel, conditions, health, r.CheckTimeout)
}

// changedNodes returns the results of the nodes on which the run activated a system that was not rolled back.
func changedNodes(results []rollout.Result) []rollout.Result {
	var out []rollout.Result
	for _, result := range results {
		if result.Activation != nil && !result.Activation.RolledBack() {
			out = append(out, result)
		}
	}
	return out
}

// restoreChanged implements --rollback all: it rolls back all nodes that this run has changed, and returns their new results.
func restoreChanged(ctx context.Context, r *run, cluster rollout.Cluster, results []rollout.Result) ([]rollout.Result, error) {
	byNode := map[string]rollout.Result{}
	var nodes []plan.Node
	for _, result := range changedNodes(results) {
		byNode[result.Node.Name] = result
		nodes = append(nodes, plan.ActivateEarlier(result.Node, r.Options.Options))
	}
	p := plan.Decide(nodes, nil, cluster.Cluster, r.Options.Options)
	p.Drains = plan.Drains{} // a node that cannot be drained is restored without a drain
	// A node that could not be restored has the system of this run, so it keeps its result, and gets the error.
	keep := func(result rollout.Result) rollout.Result {
		if result.Outcome == state.RolledBack {
			return result
		}
		done := byNode[result.Node.Name]
		done.Err = result.Err
		return done
	}
	x := &rollout.Rollout{Cluster: cluster, Parallel: r.Parallel, Done: func(result rollout.Result) { r.report(keep(result)) }, Restores: true}
	restored, err := x.Execute(ctx, p, func(ctx context.Context, n plan.Node, _ func(context.Context)) rollout.Result {
		done := byNode[n.Node.Name]
		before := done.Activation.Before
		if err := r.Restore(ctx, *done.Task, before, r.Options.Options.Options); err != nil {
			done.Err = &fleet.NodeError{Node: n.Node.Name, Step: event.Activate, Err: fmt.Errorf("cannot be rolled back: %w", err)}
			return done
		}
		done.Path, done.Outcome, done.Err = before.Current, state.RolledBack, nil
		done.Text = fmt.Sprintf("rolled back to generation %d, because another node failed", before.GenerationOf(before.Current))
		return done
	})
	for i, result := range restored {
		restored[i] = keep(result)
	}
	return restored, err
}

// dropKeyBackups deletes the backups of replaced keys on nodes, which were kept for the case that the whole run is rolled back.
func dropKeyBackups(ctx context.Context, r *run, results []rollout.Result) error {
	var nodes []nixeval.Node
	for _, result := range changedNodes(results) {
		if result.Task.KeySet != nil {
			nodes = append(nodes, result.Node)
		}
	}
	return errors.Join(fleet.Errors(fleet.Each(ctx, nodes, r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
		return struct{}{}, r.DropKeyBackup(ctx, n)
	}))...)
}

// report writes a node's result to the record of the run, and sends it as an event.
func (d *Deployer) report(r rollout.Result) {
	text := r.Text
	if r.Err != nil {
		text = formatFailure(r)
	}
	d.Record.RecordResult(toNodeResult(r))
	d.Send.Send(event.Event{
		Kind: event.NodeResult, Phase: event.Deploy, Node: r.Node.Name, Text: text,
		Failed: r.Err != nil || r.Outcome == state.Skipped,
	})
}

func toNodeResult(r rollout.Result) state.NodeResult {
	if r.Err != nil {
		r.Error = r.Err.Error()
	}
	return r.NodeResult
}

// recordSkipped writes to the record of the run that all nodes were skipped. err is the reason.
func (d *Deployer) recordSkipped(nodes []nixeval.Node, err error) {
	for _, n := range nodes {
		d.Record.RecordResult(state.NodeResult{Node: n.Name, Unit: n.Unit, Outcome: state.Skipped, Error: err.Error()})
	}
}

// replaceResults returns results with the newer result of each node that has one, but with the Task and Activation in results.
func replaceResults(results, newer []rollout.Result) []rollout.Result {
	out := slices.Clone(results)
	for i, r := range out {
		if j := slices.IndexFunc(newer, func(n rollout.Result) bool { return n.Node.Name == r.Node.Name }); j >= 0 {
			out[i] = newer[j]
			out[i].Task, out[i].Activation = r.Task, r.Activation
		}
	}
	return out
}

// formatFailure formats a failed result in one line: `rolled back: unit nginx.service failed`.
func formatFailure(r rollout.Result) string {
	text := fleet.Brief(r.Node.Name, r.Err)
	switch r.Outcome {
	case state.RolledBack:
		return "rolled back: " + text
	case state.Skipped:
		return "skipped: " + strings.TrimPrefix(text, "skipped: ")
	}
	return "failed: " + text
}

// formatCounts formats how many nodes of a run had each outcome: `2 switched, 1 failed`. The words depend on the goal of the run.
func formatCounts(results []rollout.Result, goal node.Goal) string {
	counts := map[state.Outcome]int{}
	for _, r := range results {
		counts[r.Outcome]++
	}
	var parts []string
	for _, o := range []state.Outcome{state.Switched, node.Rebooted, state.Unchanged, state.RolledBack, state.Failed, state.Skipped} {
		if counts[o] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[o], goal.Describe(o)))
		}
	}
	return strings.Join(parts, ", ")
}
