package stages

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

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

// restoreChanged rolls all nodes that this run has changed back to their previous systems, and returns their new results. It implements
// --rollback-all-on-failure.
func (r *run) restoreChanged(ctx context.Context, x *rollout.Rollout, results []rollout.Result) ([]rollout.Result, error) {
	byNode := map[string]rollout.Result{}
	var nodes []plan.Node
	for _, result := range changedNodes(results) {
		byNode[result.Node.Name] = result
		nodes = append(nodes, plan.ActivateEarlier(result.Node, r.Options.Options))
	}
	p := plan.Decide(nodes, nil, x.Cluster.Observed(), r.Options.Options)
	var mu sync.Mutex
	var restored []rollout.Result
	err := x.Restore(ctx, p, func(ctx context.Context, name string) error {
		done := byNode[name]
		before := done.Activation.Before
		if err := r.nodeChanger().Restore(ctx, *done.Task, before, r.nodeOptions()); err != nil {
			return &fleet.NodeError{Node: name, Step: event.Activate, Err: fmt.Errorf("cannot be rolled back: %w", err)}
		}
		done.Path, done.Outcome, done.Err = before.Current, state.RolledBack, nil
		done.Text = fmt.Sprintf("rolled back to generation %d, because another node failed", node.GenerationOf(before, before.Current))
		r.report(done)
		mu.Lock()
		defer mu.Unlock()
		restored = append(restored, done)
		return nil
	})
	return restored, err
}

// dropKeyBackups deletes the backups of replaced keys on the nodes. The nodes kept them for the case that the whole run is rolled
// back.
func (r *run) dropKeyBackups(ctx context.Context, results []rollout.Result) error {
	var nodes []nixeval.Node
	for _, result := range changedNodes(results) {
		if result.Task.Keys != nil {
			nodes = append(nodes, result.Node)
		}
	}
	return errors.Join(fleet.Errors(fleet.Each(ctx, nodes, r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
		return struct{}{}, r.nodeChanger().DropKeyBackup(ctx, n)
	}))...)
}
