package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

type Result struct {
	Node nixeval.Node
	state.NodeResult
	Text       string           // describes a result without an error
	Err        error            // why the node has failed, or nil
	Task       *node.Task       // the deployment that was begun; nil: none
	Activation *activate.Result // nil: no system was activated
}

// NewResult returns the result of a node. path is the store path of the system that the node should run.
func NewResult(n nixeval.Node, path string, outcome state.Outcome, text string, err error) Result {
	return Result{Node: n, NodeResult: state.NodeResult{Node: n.Name, Unit: n.Unit, Path: path, Outcome: outcome}, Text: text, Err: err}
}

// notChanged returns the result of a node whose change was not begun.
func notChanged(n plan.Node, outcome state.Outcome, text string, err error) Result {
	return NewResult(n.Node, n.Closure.Out, outcome, text, err)
}

// Rollout executes plans in a cluster: it changes nodes wave by wave, and drains members before they change.
type Rollout struct {
	Cluster Cluster
	// Ready maps a node to a channel that is closed when the node may be changed. A node without a channel may be changed at once.
	Ready    map[string]<-chan struct{}
	Parallel int          // maximum number of nodes of a wave that change at once; 0: all
	Slots    Slots        // limits how many nodes are changed at once, together with other work on nodes
	Done     func(Result) // called with the result of each node

	// Restores means that the changes bring nodes back to systems that work, because another node has failed. So a node that cannot
	// be drained is restored without a drain, and a node that cannot be restored does not stop the restore of other nodes. Only
	// members that may be changed one at a time are not restored after it, because two of them would be down at the same time.
	Restores bool

	// The nodes that the engine did not admit, that is to make them members, when they were deployed.
	admitting   sync.Mutex
	notAdmitted []string
}

// Change changes one node. If afterLogin is not nil, Change calls it when a login to the node succeeds with the new system.
type Change func(ctx context.Context, n plan.Node, afterLogin func(context.Context)) Result

// Slots limits on how many nodes a run works at the same time. Nil means that there is no limit.
type Slots chan struct{}

func NewSlots(n int) Slots {
	if n <= 0 {
		return nil
	}
	return make(Slots, n)
}

func (s Slots) Enter() (leave func()) {
	if s == nil {
		return func() {}
	}
	s <- struct{}{}
	return func() { <-s }
}

// Execute changes the nodes of a plan, one wave after the other, and stops after a wave in which a node has failed. Before the first
// change, it checks the drains of all nodes. It also drains the nodes that leave their engine or are removed at the end of the run. If
// one of these drains fails, or a later drain would be refused, it changes no node. The error joins the errors of all nodes.
func (r *Rollout) Execute(ctx context.Context, p plan.Plan, change Change) ([]Result, error) {
	var results []Result
	add := func(n plan.Node, outcome state.Outcome, text string, err error) {
		results = append(results, notChanged(n, outcome, text, err))
		r.Done(results[len(results)-1])
	}
	for _, n := range p.Nodes {
		switch {
		case n.Err != nil:
			add(n, state.Failed, "", n.Err)
		case !n.CanDeploy():
			add(n, state.Skipped, "skipped: it was not built", nil)
		}
	}
	skip := func(waves [][]plan.Node, why string) {
		for _, n := range slices.Concat(waves...) {
			add(n, state.Skipped, why, nil)
		}
	}
	if err := r.drainFirst(ctx, p.Drains); err != nil {
		skip(p.Waves, "skipped: members cannot be drained")
		return results, errors.Join(errorOf(results), err)
	}
	var joining []plan.Node
	notRestored := ""
	for i, wave := range p.Waves {
		if alone := r.Cluster.IsOneByOne(wave); alone && notRestored != "" {
			name := wave[0].Node.Name
			add(wave[0], state.Failed, "", &fleet.NodeError{Node: name, Step: event.Activate, Err: fmt.Errorf("not rolled back, because %s could not be rolled back; use nixbench rollback --on %s", notRestored, name)})
			continue
		}
		done := r.changeWave(ctx, wave, results, change)
		results = append(results, done...)
		later := p.Waves[i+1:]
		switch failed := errorOf(done) != nil; {
		case failed && r.Restores:
			if r.Cluster.IsOneByOne(wave) {
				notRestored = wave[0].Node.Name
			}
			continue
		case failed:
			skip(later, "skipped: a node of an earlier wave failed")
			return results, errorOf(results)
		case i == 0:
			joining = wave
		}
		// Admit the nodes of the first wave after the last wave with control planes or other members that change one at a time:
		// such members admit nodes, and have the configuration of the hive by then.
		if !slices.ContainsFunc(later, r.Cluster.IsOneByOne) || later[0][0].Removes() {
			r.admitPending(ctx, joining)
			joining = nil
		}
	}
	return results, errorOf(results)
}

// errorOf joins the errors of results; it returns nil if there are none.
func errorOf(results []Result) error {
	errs := make([]error, len(results))
	for i, result := range results {
		errs[i] = result.Err
	}
	return errors.Join(errs...)
}

// drainFirst checks all drains of a plan. It then drains the nodes that must be drained before the first node of the plan changes.
// These are also the nodes whose machines are removed at the end of the run: the new configuration of a controller may no longer
// contain them, and then the work on them would be lost.
func (r *Rollout) drainFirst(ctx context.Context, d plan.Drains) error {
	checks, err := r.Cluster.CheckDrains(ctx, d)
	if err != nil {
		return err
	}
	r.Cluster.announceDeletions(checks)
	for _, e := range r.Cluster.engines {
		if err := r.Cluster.drainForRemoval(ctx, e, r.Cluster.Drainable(e, d.Obsolete)); err != nil {
			return err
		}
	}
	return r.Cluster.drainLeaving(ctx, slices.Concat(d.Change, d.Remove))
}

// changeWave changes the nodes of a wave. earlier are the results of the nodes in the earlier waves.
func (r *Rollout) changeWave(ctx context.Context, wave []plan.Node, earlier []Result, change Change) []Result {
	byName := map[string]plan.Node{}
	var nodes []nixeval.Node
	for _, n := range wave {
		byName[n.Node.Name] = n
		nodes = append(nodes, n.Node)
	}
	var results []Result
	for _, o := range fleet.EachReady(ctx, nodes, r.Ready, r.Parallel, func(ctx context.Context, n nixeval.Node) (Result, error) {
		defer r.Slots.Enter()()
		if ctx.Err() != nil {
			return Result{}, context.Cause(ctx)
		}
		result := r.changeNode(ctx, byName[n.Name], earlier, change)
		r.Done(result)
		return result, nil
	}) {
		if o.Err != nil { // the change of the node was not begun, because the run was cancelled, or it has panicked
			o.Value = notChanged(byName[o.Node.Name], state.Skipped, "skipped: not started", nil)
			r.Done(o.Value)
			o.Value.Err = o.Err
		}
		results = append(results, o.Value)
	}
	return results
}

// changeNode changes one node. A member is drained before. If the node's engine does not answer, the node is admitted right after
// the change. If no cluster runs yet, the node is admitted while nixbench still watches the node's services, so that the cluster
// is created without waiting for the end of the watch. All other nodes are admitted by admitPending.
func (r *Rollout) changeNode(ctx context.Context, n plan.Node, earlier []Result, change Change) Result {
	cluster, name := r.Cluster, n.Node.Name
	if m := cluster.Members[name]; n.Joins && m.Recreated { // so that the node can join the cluster as a new member
		if err := m.Engine.RemoveMember(ctx, name); err != nil {
			return notChanged(n, state.Failed, "", fleet.NewNodeError(name, event.Drain, err))
		}
	}
	if n.Changes && !r.Restores {
		if err := cluster.removeLeaving(ctx, name); err != nil {
			return notChanged(n, state.Failed, "", err)
		}
	}
	m, isMember := cluster.Members[name]
	if isMember && n.Removes() {
		return r.recreateMember(ctx, n, earlier, change)
	}
	admitted := false
	var afterLogin func(context.Context)
	if n.Joins && !cluster.Running() {
		afterLogin = func(ctx context.Context) { admitted = r.admit(ctx, name) == nil }
	}
	begun := false
	result := notChanged(n, state.Failed, "", nil)
	result.Err = cluster.withDrain(ctx, name, n.Drain, func() error {
		begun, result = true, change(ctx, n, afterLogin)
		return result.Err
	})
	if !begun && r.Restores && ctx.Err() == nil { // the earlier system may repair what prevents the drain
		cluster.send.WarnOn(name, "%v", result.Err)
		result = change(ctx, n, nil)
	}
	switch {
	case result.Err != nil || !n.Joins || admitted || cluster.Running() && !m.Unreachable:
	case cluster.Running() && n.Noop: // the engine did not answer before, and nothing changed on the node that could repair it: admit the node at the end of the run
		r.postponeAdmission(name)
	default:
		r.admitOrRetry(ctx, name)
	}
	return result
}

// recreateMember removes a member from the cluster, recreates the member's machine, and waits until the node has joined the cluster
// again. It waits because the next member to be recreated may have data that this node must copy first. For the same reason, it first
// waits for other nodes that are about to join and may only be changed one at a time: a killed run may have recreated their machines.
func (r *Rollout) recreateMember(ctx context.Context, n plan.Node, earlier []Result, change Change) Result {
	cluster, name := r.Cluster, n.Node.Name
	e := cluster.Members[name].Engine
	for _, other := range slices.Sorted(maps.Keys(cluster.Desired)) {
		m := cluster.Desired[other]
		deployed := slices.ContainsFunc(earlier, func(r Result) bool { return r.Node.Name == other })
		if m.Kind != cluster.Desired[name].Kind || !m.OneByOne || !deployed || cluster.IsCurrent(other) {
			continue
		}
		if err := cluster.runStep(ctx, e, []string{other}, "is about to join", func(ctx context.Context) error {
			return e.WaitReady(ctx, other, cluster.sendProgress)
		}); err != nil {
			return notChanged(n, state.Failed, "", fleet.NewNodeError(name, event.Drain, fmt.Errorf("it is not recreated while another member that must change alone has not joined: %w", err)))
		}
	}
	if err := NewCluster([]engine.Engine{e}, cluster.observer).RemoveMembers(ctx, []string{name}, !n.Drain); err != nil {
		return notChanged(n, state.Failed, "", err)
	}
	result := change(ctx, n, nil)
	if result.Err != nil {
		return result
	}
	if result.Err = fleet.NewNodeError(name, event.Drain, r.admit(ctx, name)); result.Err == nil {
		result.Err = cluster.waitAndUncordon(ctx, e, name)
	}
	return result
}

// admitPending admits the deployed nodes that are not members yet. It does nothing if no cluster was running: each node was then
// admitted right after its deployment.
func (r *Rollout) admitPending(ctx context.Context, nodes []plan.Node) {
	for _, n := range nodes {
		if n.Joins && r.Cluster.Running() && !r.Cluster.IsCurrent(n.Node.Name) {
			r.admitOrRetry(ctx, n.Node.Name)
		}
	}
}

// admit asks each engine once to admit a node, which means to accept the node as a member.
func (r *Rollout) admit(ctx context.Context, node string) error {
	wait := r.Cluster.send.Wait(event.Event{Node: node, Text: "the cluster to admit it"})
	defer wait.End()
	var errs []error
	for _, e := range r.Cluster.engines {
		if admitter, ok := e.(engine.Admitter); ok {
			errs = append(errs, r.Cluster.watch(ctx, e, []string{node}, func(ctx context.Context) error { return admitter.Admit(ctx, node) }))
		}
	}
	return errors.Join(errs...)
}

// admitOrRetry asks the engines to admit a node that runs its new system. If an engine fails, RetryAdmissions tries again at the
// end of the run, because the members that admit nodes may still be booting. After the first failure, all other nodes are admitted
// only at the end, because each of them would wait for the same answer.
func (r *Rollout) admitOrRetry(ctx context.Context, node string) {
	r.admitting.Lock()
	hasFailed := len(r.notAdmitted) > 0
	r.admitting.Unlock()
	if hasFailed || r.admit(ctx, node) != nil {
		r.postponeAdmission(node)
	}
}

func (r *Rollout) postponeAdmission(node string) {
	r.admitting.Lock()
	defer r.admitting.Unlock()
	r.notAdmitted = append(r.notAdmitted, node)
}

// RetryAdmissions admits the nodes that could not be admitted when they were deployed. If this fails again, it only sends a
// warning, because the check at the end of the run reports missing nodes.
func (r *Rollout) RetryAdmissions(ctx context.Context) {
	_ = fleet.ForAll(r.notAdmitted, func(node string) error {
		if err := r.admit(ctx, node); err != nil && ctx.Err() == nil {
			r.Cluster.send.WarnOn(node, "%v", err)
		}
		return nil
	})
}
