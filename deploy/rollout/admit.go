package rollout

import (
	"context"
	"errors"
	"sync"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
)

// admissions contains the nodes that could not be admitted when they were deployed: the engine did not make them members.
type admissions struct {
	mu     sync.Mutex
	failed []string
}

func (a *admissions) add(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = append(a.failed, node)
}

func (a *admissions) hasFailed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.failed) > 0
}

// admit asks each engine once to admit a node, which means to accept the node as a member.
func (r *Rollout) admit(ctx context.Context, node string) error {
	cluster := r.Cluster
	wait := cluster.send.Wait(event.Event{Node: node, Text: "the cluster to admit it"})
	defer wait.End()
	var errs []error
	for _, e := range cluster.engines {
		if admitter, ok := e.(engine.Admitter); ok {
			errs = append(errs, cluster.watch(ctx, e, []string{node}, func(ctx context.Context) error { return admitter.Admit(ctx, node) }))
		}
	}
	return errors.Join(errs...)
}

// admitOrRetry asks the engines to admit a node that runs its new system. If an engine fails, RetryAdmissions tries again at the
// end of the run, because the members that admit nodes may still be booting. After the first failure, all other nodes are admitted
// only at the end, because each of them would wait for the same answer.
func (r *Rollout) admitOrRetry(ctx context.Context, node string) {
	if r.admissions.hasFailed() || r.admit(ctx, node) != nil {
		r.admissions.add(node)
	}
}

// RetryAdmissions admits the nodes that could not be admitted when they were deployed. If this fails again, it only sends a
// warning, because the check at the end of the run reports missing nodes.
func (r *Rollout) RetryAdmissions(ctx context.Context) {
	_ = fleet.ForAll(r.admissions.failed, func(node string) error {
		if err := r.admit(ctx, node); err != nil && ctx.Err() == nil {
			r.Cluster.warn(node, err)
		}
		return nil
	})
}
