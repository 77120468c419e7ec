package deploy

import (
	"context"
	"slices"

	"github.com/nixbench/nixbench/deploy/rollout"
)

// needsDrain reports whether the node of a task is drained before it changes.
func (r *run) needsDrain(t task) bool {
	return !r.WithoutDrain && t.plan.NeedsDrain(r.Goal)
}

// changesNow reports whether the run changes what a node runs, or recreates its machine.
func (r *run) changesNow(t task) bool {
	return t.plan.NeedsDrain(r.Goal) || t.plan.Removes()
}

// drainBeforeChanges drains the nodes whose work must end before the first node changes: the nodes that leave their
// engine, and the nodes that are removed at the end of the run. checkRunDrains has checked these drains.
func (r *run) drainBeforeChanges(ctx context.Context, cluster rollout.Cluster, tasks []task) error {
	if r.WithoutDrain {
		return nil
	}
	removed := r.machines.RemovedNodes()
	leaving := slices.Clone(removed)
	for _, t := range tasks {
		if r.changesNow(t) {
			leaving = append(leaving, t.Node.Name)
		}
	}
	if r.Goal.ActivatesNow() {
		if err := cluster.DrainForRemoval(ctx, removed); err != nil {
			return err
		}
	}
	return cluster.DrainLeaving(ctx, leaving)
}

// checkRunDrains returns an error if a drain of the run would be refused. It is called before the first node
// changes. It checks the nodes that change, and the nodes that are removed during the run or at the end of the
// run.
func (r *run) checkRunDrains(ctx context.Context, cluster rollout.Cluster, tasks []task) error {
	if r.WithoutDrain {
		return nil
	}
	var change, remove []string
	for _, t := range tasks {
		switch {
		case t.plan.Removes():
			remove = append(remove, t.Node.Name)
		case r.needsDrain(t):
			change = append(change, t.Node.Name)
		}
	}
	remove = append(remove, r.machines.RemovedNodes()...)
	return cluster.CheckDrains(ctx, change, remove)
}
