package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Result is what a run did to one node.
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

	admissions admissions
}

// Change changes one node. If afterLogin is not nil, Change calls it when a login to the node succeeds with the new system.
type Change func(ctx context.Context, n plan.Node, afterLogin func(context.Context)) Result

// Slots limits on how many nodes a run works at the same time. Nil means that there is no limit.
type Slots chan struct{}

// NewSlots returns slots for a number of nodes; 0: no limit.
func NewSlots(n int) Slots {
	if n <= 0 {
		return nil
	}
	return make(Slots, n)
}

// Enter waits for a slot. The caller calls leave afterwards.
func (s Slots) Enter() (leave func()) {
	if s == nil {
		return func() {}
	}
	s <- struct{}{}
	return func() { <-s }
}

// Execute changes the nodes of a plan, one wave after the other, and stops after a wave in which a node has failed. Before the
// first change, it checks the drains of all nodes. It also drains the nodes that leave their engine or are removed at the end of
// the run. If one of these drains fails, or a later drain would be refused, it changes no node. The error joins the errors of all
// nodes.
func (r *Rollout) Execute(ctx context.Context, p plan.Plan, change Change) ([]Result, error) {
	var results []Result
	add := func(all ...Result) {
		for _, result := range all {
			r.Done(result)
		}
		results = append(results, all...)
	}
	for _, n := range p.Nodes {
		switch {
		case n.Err != nil:
			add(notChanged(n, state.Failed, "", n.Err))
		case !n.CanDeploy():
			add(notChanged(n, state.Skipped, "skipped: it was not built", nil))
		}
	}
	skip := func(nodes []plan.Node, why string) {
		for _, n := range nodes {
			add(notChanged(n, state.Skipped, why, nil))
		}
	}
	if err := r.drainFirst(ctx, p.Drains); err != nil {
		skip(slices.Concat(p.Waves...), "skipped: members cannot be drained")
		return results, errors.Join(append(errorsOf(results), err)...)
	}
	var joining []plan.Node
	for i, wave := range p.Waves {
		done := r.changeWave(ctx, wave, results, change)
		results = append(results, done...)
		later := p.Waves[i+1:]
		if len(errorsOf(done)) > 0 {
			skip(slices.Concat(later...), "skipped: a node of an earlier wave failed")
			break
		}
		if i == 0 {
			joining = wave
		}
		// Admit the nodes of the first wave after the last wave with control planes or other members that change one at a time:
		// such members admit nodes, and have the configuration of the hive by then.
		if !slices.ContainsFunc(later, r.Cluster.isOneByOne) || later[0][0].Removes() {
			r.admitPending(ctx, joining)
			joining = nil
		}
	}
	return results, errors.Join(errorsOf(results)...)
}

func errorsOf(results []Result) []error {
	var errs []error
	for _, result := range results {
		if result.Err != nil {
			errs = append(errs, result.Err)
		}
	}
	return errs
}

// drainFirst checks all drains of a plan. It then drains the nodes that must be drained before the first node of the plan changes.
func (r *Rollout) drainFirst(ctx context.Context, d plan.Drains) error {
	checks, err := r.Cluster.CheckDrains(ctx, d.Change, d.Remove)
	if err != nil {
		return err
	}
	r.Cluster.announceDeletions(checks)
	if err := r.Cluster.drainForRemoval(ctx, d.Obsolete); err != nil {
		return err
	}
	return r.Cluster.drainLeaving(ctx, d.Leave)
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
	if n.Joins {
		if err := cluster.removeStaleMember(ctx, name); err != nil {
			return notChanged(n, state.Failed, "", err)
		}
	}
	if n.Changes {
		if err := cluster.removeLeaving(ctx, name); err != nil {
			return notChanged(n, state.Failed, "", err)
		}
	}
	if cluster.IsMember(name) && n.Removes() {
		return r.recreateMember(ctx, n, earlier, change)
	}
	admitted := false
	var afterLogin func(context.Context)
	if n.Joins && !cluster.Running() {
		afterLogin = func(ctx context.Context) { admitted = r.admit(ctx, name) == nil }
	}
	result := notChanged(n, state.Failed, "", nil)
	result.Err = cluster.withDrain(ctx, name, n.Drain, func() error {
		result = change(ctx, n, afterLogin)
		return result.Err
	})
	switch {
	case result.Err != nil || !n.Joins || admitted || cluster.Running() && !cluster.IsUnreachable(name):
	case cluster.Running() && n.Noop: // the engine did not answer before, and nothing changed on the node that could repair it: admit the node at the end of the run
		r.admissions.add(name)
	default:
		r.admitOrRetry(ctx, name)
	}
	return result
}

// recreateMember removes a member from the cluster, recreates the member's machine, and waits until the node has joined the
// cluster again. It waits because the next member to be recreated may have data that this node must copy first. For the same
// reason, it first waits for other nodes that are about to join and may only be changed one at a time: a killed run may have
// recreated their machines.
func (r *Rollout) recreateMember(ctx context.Context, n plan.Node, earlier []Result, change Change) Result {
	cluster, name := r.Cluster, n.Node.Name
	e := cluster.members[name].engine
	for _, other := range slices.Sorted(maps.Keys(cluster.desired)) {
		m := cluster.desired[other]
		deployed := slices.ContainsFunc(earlier, func(r Result) bool { return r.Node.Name == other })
		if m.Kind != cluster.desired[name].Kind || !m.OneByOne || !deployed || cluster.isCurrentMember(other) {
			continue
		}
		if err := cluster.runMemberStep(ctx, e, other, "is about to join", func(ctx context.Context) error {
			return e.WaitReady(ctx, other, cluster.sendProgress)
		}); err != nil {
			err = &fleet.NodeError{Node: name, Step: event.Drain, Err: fmt.Errorf("it is not recreated while another member that must change alone has not joined: %w", err)}
			return notChanged(n, state.Failed, "", err)
		}
	}
	if err := NewCluster([]engine.Engine{e}, cluster.send).RemoveMembers(ctx, []string{name}, !n.Drain, cluster.drainOptions); err != nil {
		return notChanged(n, state.Failed, "", err)
	}
	result := change(ctx, n, nil)
	if result.Err != nil {
		return result
	}
	if err := r.admit(ctx, name); err != nil {
		result.Err = &fleet.NodeError{Node: name, Step: event.Drain, Err: err}
	} else {
		result.Err = cluster.waitAndUncordon(ctx, cluster.members[name], name)
	}
	return result
}

// admitPending admits the deployed nodes that are not members yet. It does nothing if no cluster was running: each node was then
// admitted right after its deployment.
func (r *Rollout) admitPending(ctx context.Context, nodes []plan.Node) {
	for _, n := range nodes {
		if n.Joins && r.Cluster.Running() && !r.Cluster.isCurrentMember(n.Node.Name) {
			r.admitOrRetry(ctx, n.Node.Name)
		}
	}
}
