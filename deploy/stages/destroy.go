package stages

import (
	"context"
	"slices"

	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

func (d *Deployer) Destroy(ctx context.Context, destroyPlan *machine.DestroyPlan, o Options) ([]state.NodeResult, error) {
	if d.Store.State().Cluster == nil {
		return []state.NodeResult{}, nil
	}
	if d.Engines != nil && (!destroyPlan.WholeCluster || d.hasRemainingMembers(destroyPlan.RemovedNodes())) {
		if err := d.removeDestroyedMembers(ctx, destroyPlan, o); err != nil {
			return nil, err
		}
	}
	return d.Machines.Destroy(ctx, destroyPlan, d.Store, d.Record, o.Parallel)
}

// hasRemainingMembers reports whether a deployed node that may be a cluster member remains after the nodes in removed are removed, such as
// a node whose machine nixbench does not manage.
func (d *Deployer) hasRemainingMembers(removed []string) bool {
	hive, recorded := d.Machines.Hive, d.Store.State()
	return slices.ContainsFunc(hive.Nodes, func(n nixeval.Node) bool {
		u := hive.Unit(n.Unit)
		member := hive.Broken[n.Unit] != nil || u != nil && u.Deployment.Engine != nil
		return member && recorded.Nodes[n.Name].LastConfirmed != nil && !slices.Contains(removed, n.Name)
	})
}

// removeDestroyedMembers removes the nodes of a destroy plan from their cluster. The engines run commands only on nodes that are
// not destroyed. An engine without such a node is left as it is.
func (d *Deployer) removeDestroyedMembers(ctx context.Context, destroyPlan *machine.DestroyPlan, o Options) error {
	nodes := destroyPlan.RemovedNodes()
	engines, err := d.Engines.Of(d.Machines.Hive, d.Fleet, nodes...)
	if err != nil {
		return err
	}
	if err := rollout.CheckMembersEvaluable(d.Machines.Hive, d.Store); err != nil && !o.WithoutDrain {
		return err
	} else if err != nil {
		d.Send.Warn("machines are removed, and other members may still list their nodes: %v", err)
	}
	return rollout.NewCluster(engines, d.observer(d.Machines.Hive, nil, o.Drain)).RemoveMembers(ctx, nodes, o.WithoutDrain)
}
