package deploy

import (
	"context"
	"errors"
	"fmt"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// restoreNodes rolls all nodes that this run has switched back to their previous systems:
// --rollback-all-on-failure. In a running cluster it is a rolling update in the order of the run. Two things
// differ from apply. A node that cannot be drained is restored without a drain, because the previous system
// may be what repairs it. And a node that cannot be restored does not stop the others, unless it and the next
// one may only be changed one at a time: then two of them would be down at the same time.
func (r *run) restoreNodes(ctx context.Context, cluster clusterState) error {
	waves := cluster.orderWaves(r.changedNodes(), func(string) bool { return !r.Goal.activatesNow() }, r.MaxUnavailable)
	var errs []error
	missing := ""
	for _, wave := range waves {
		if cluster.isOneByOne(wave) && missing != "" {
			node := wave[0].Name
			errs = append(errs, &NodeError{Node: node, Step: event.Activate, Err: fmt.Errorf("not rolled back, because %s does not work yet; use nixbench rollback --on %s", missing, node)})
			continue
		}
		for _, o := range Each(ctx, wave, r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
			started := false
			restore := func() error {
				started = true
				return r.restoreNode(ctx, n)
			}
			err := r.withDrain(ctx, cluster, n.Name, r.WithoutDrain || !r.Goal.activatesNow(), restore)
			if !started && ctx.Err() == nil {
				r.warn(n.Name, err)
				err = restore()
			}
			return struct{}{}, err
		}) {
			if o.Err != nil && cluster.isOneByOne(wave) && !r.memberWorks(ctx, cluster, o.Node.Name) {
				missing = o.Node.Name
			}
			errs = append(errs, o.Err)
		}
	}
	return errors.Join(errs...)
}

// memberWorks reports whether a cluster member works with the system that it has now.
func (r *run) memberWorks(ctx context.Context, cluster clusterState, node string) bool {
	ctx, cancel := context.WithTimeout(ctx, uncordonTimeout)
	defer cancel()
	return cluster.members[node].engine.UncordonWhenReady(ctx, node, func(string) {}) == nil
}

// restoreNode rolls one node back to what it ran and booted before this run, and reports it.
func (r *run) restoreNode(ctx context.Context, n nixeval.Node) error {
	before := r.stateBefore(n)
	if err := r.restoreSystems(ctx, n, before); err != nil {
		return &NodeError{Node: n.Name, Step: event.Activate, Err: fmt.Errorf("cannot be rolled back: %w", err)}
	}
	text := fmt.Sprintf("rolled back to generation %d, because another node failed", generationOf(before, before.Current))
	r.recordOutcome(n, nixeval.Closure{Out: before.Current}, state.RolledBack, text, nil)
	return nil
}

// restoreSystems restores the system that the node ran and the one that it would have booted. After
// apply boot or apply test those are two.
func (r *run) restoreSystems(ctx context.Context, n nixeval.Node, before activate.Node) error {
	h, err := r.Fleet.Host(ctx, n)
	if err != nil {
		return err
	}
	if r.Goal != Boot {
		goal := activate.Switch
		if r.Goal == Test {
			goal = activate.Test
		}
		if err := r.restoreSystem(ctx, n, h, before, goal, before.Current); err != nil {
			return err
		}
	}
	if r.Goal != Test && before.Profile != before.Current || r.Goal == Boot {
		return r.restoreSystem(ctx, n, h, before, activate.Boot, before.Profile)
	}
	return nil
}

func (r *run) restoreSystem(ctx context.Context, n nixeval.Node, h nodeHost, before activate.Node, goal activate.Goal, path string) error {
	generation := generationOf(before, path)
	if generation == 0 {
		return errors.New("it had no earlier generation")
	}
	if !r.WithoutKeys { // before the system: its units start with the previous keys
		if err := r.Uploader.PutBack(ctx, n.Name, h); err != nil {
			return err
		}
	}
	_, _, err := r.applySystem(ctx, n.Name, h, systemTarget{
		before: before, generation: generation, restores: true,
		request: activate.Request{Run: r.Record.ID() + "-back", Path: path, Goal: goal, Confirm: r.Confirm, SettleTime: r.SettleTime, ReplaceUnknown: true},
	})
	return err
}
