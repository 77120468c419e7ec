package stages

import (
	"context"
	"errors"
	"fmt"

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
// --rollback all.
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
		done.Text = fmt.Sprintf("rolled back to generation %d, because another node failed", node.GenerationOf(before, before.Current))
		return done
	})
	for i, result := range restored {
		restored[i] = keep(result)
	}
	return restored, err
}

// dropKeyBackups deletes the backups of replaced keys on the nodes. The nodes kept them for the case that the whole run is rolled
// back.
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
