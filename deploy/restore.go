package deploy

import (
	"context"
	"errors"
	"fmt"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// restoreChangedNodes rolls all nodes that this run has changed back to their previous systems. It implements
// --rollback-all-on-failure. In a running cluster it is a rolling update in the order of the run, with two
// differences from apply:
//
//   - A node that cannot be drained is restored without a drain, because the previous system may repair the
//     node.
//   - A node that cannot be restored does not stop the restore of the other nodes. Only members that may be
//     changed one at a time are not restored after it, because two of them would be down at the same time.
func (r *run) restoreChangedNodes(ctx context.Context, cluster rollout.Cluster) error {
	waves := cluster.OrderWaves(r.changedNodes(), func(string) bool { return !r.Goal.ActivatesNow() }, r.MaxUnavailable)
	var errs []error
	notReady := ""
	for _, wave := range waves {
		if cluster.IsOneByOne(wave) && notReady != "" {
			node := wave[0].Name
			errs = append(errs, &fleet.NodeError{Node: node, Step: event.Activate, Err: fmt.Errorf("not rolled back, because %s does not work yet; use nixbench rollback --on %s", notReady, node)})
			continue
		}
		for _, o := range fleet.Each(ctx, wave, r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
			started := false
			restore := func() error {
				started = true
				return r.restoreNode(ctx, n)
			}
			err := cluster.WithDrain(ctx, n.Name, r.WithoutDrain || !r.Goal.ActivatesNow(), restore)
			if !started && ctx.Err() == nil {
				r.warn(n.Name, err)
				err = restore()
			}
			return struct{}{}, err
		}) {
			if o.Err != nil && cluster.IsOneByOne(wave) && !r.isMemberReady(ctx, cluster, o.Node.Name) {
				notReady = o.Node.Name
			}
			errs = append(errs, o.Err)
		}
	}
	return errors.Join(errs...)
}

// isMemberReady reports whether a member becomes ready with its current system within
// [rollout.UncordonTimeout]. It changes nothing.
func (r *run) isMemberReady(ctx context.Context, cluster rollout.Cluster, node string) bool {
	ctx, cancel := context.WithTimeout(ctx, rollout.UncordonTimeout)
	defer cancel()
	return cluster.WaitReady(ctx, node) == nil
}

// restoreNode rolls one node back to the systems that it ran and would have booted before this run, and records
// the node's outcome.
func (r *run) restoreNode(ctx context.Context, n nixeval.Node) error {
	done := r.changeOf(n)
	before := done.result.Before
	if err := r.nodeChanger().Restore(ctx, done.task, before, r.nodeOptions()); err != nil {
		return &fleet.NodeError{Node: n.Name, Step: event.Activate, Err: fmt.Errorf("cannot be rolled back: %w", err)}
	}
	text := fmt.Sprintf("rolled back to generation %d, because another node failed", node.GenerationOf(before, before.Current))
	r.recordOutcome(n, nixeval.Closure{Out: before.Current}, state.RolledBack, text, nil)
	return nil
}
