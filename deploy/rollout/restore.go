package rollout

import (
	"context"
	"errors"
	"fmt"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/nixeval"
)

// Restore calls restore for each node of a plan, which rolls back changed nodes because another node has failed. It is a
// rolling update as Execute, with two differences:
//
//   - A node that cannot be drained is restored without a drain, because the previous system may repair the
//     node.
//   - A node that cannot be restored does not stop the restore of the other nodes. Only members that may be
//     changed one at a time are not restored after it, because two of them would be down at the same time.
func (r *Rollout) Restore(ctx context.Context, p plan.Plan, restore func(context.Context, string) error) error {
	cluster := r.Cluster
	var errs []error
	notReady := ""
	for _, wave := range p.Waves {
		if cluster.isOneByOne(wave) && notReady != "" {
			name := wave[0].Node.Name
			errs = append(errs, &fleet.NodeError{Node: name, Step: event.Activate, Err: fmt.Errorf("not rolled back, because %s does not work yet; use nixbench rollback --on %s", notReady, name)})
			continue
		}
		var nodes []nixeval.Node
		drains := map[string]bool{}
		for _, n := range wave {
			nodes = append(nodes, n.Node)
			drains[n.Node.Name] = n.Drain
		}
		for _, o := range fleet.Each(ctx, nodes, r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
			started := false
			err := cluster.withDrain(ctx, n.Name, drains[n.Name], func() error {
				started = true
				return restore(ctx, n.Name)
			})
			if !started && ctx.Err() == nil {
				cluster.warn(n.Name, err)
				err = restore(ctx, n.Name)
			}
			return struct{}{}, err
		}) {
			if o.Err != nil && cluster.isOneByOne(wave) && !r.isReady(ctx, o.Node.Name) {
				notReady = o.Node.Name
			}
			errs = append(errs, o.Err)
		}
	}
	return errors.Join(errs...)
}

// isReady reports whether a member becomes ready with the system that it runs now, within UncordonTimeout. It changes nothing.
func (r *Rollout) isReady(ctx context.Context, node string) bool {
	ctx, cancel := context.WithTimeout(ctx, UncordonTimeout)
	defer cancel()
	return r.Cluster.members[node].engine.WaitReady(ctx, node, func(_, _ string) {}) == nil
}
