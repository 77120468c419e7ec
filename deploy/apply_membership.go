package deploy

import (
	"context"

	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/nixeval"
)

// wasRecreated reports whether the machine of a node was recreated and the node has not been deployed since.
// Both the state and the node must have no deployment, because a true result makes the engine remove the old
// member.
func (r *run) wasRecreated(node string, inspected inspections) bool {
	recorded := r.Store.State()
	if _, ours := recorded.Machines[node]; !ours || recorded.Nodes[node].LastConfirmed != nil || inspected[node] == nil {
		return false
	}
	<-inspected[node].done
	observed := inspected[node].observed
	return inspected[node].err == nil && observed.Last == nil && len(observed.Deployed) == 0
}

// admitPendingNodes admits the deployed nodes that are not members yet. It is called after the members that
// admit nodes have changed, so that these members have the configuration of the hive.
func (r *run) admitPendingNodes(ctx context.Context, cluster rollout.Cluster, nodes []nixeval.Node) {
	if !cluster.Running() || !r.Goal.ActivatesNow() {
		return // each node was admitted right after it was deployed
	}
	for _, n := range nodes {
		if !cluster.IsCurrentMember(n.Name) {
			r.admitNode(ctx, cluster, n.Name)
		}
	}
}

// admitNode asks the engines to admit a node that runs its new system. If that fails, retryAdmissions tries again
// at the end of the run, because the members that admit nodes may still be booting. After a failure, the other nodes are admitted only then, because
// each of them would wait for the same answer.
func (r *run) admitNode(ctx context.Context, cluster rollout.Cluster, node string) {
	if r.hasNotJoined() || cluster.Admit(ctx, node) != nil {
		r.recordNotJoined(node)
	}
}

// retryAdmissions admits the nodes that could not be admitted when they were deployed. A second failure is only
// a warning, because the check at the end of the run reports missing nodes.
func (r *run) retryAdmissions(ctx context.Context, cluster rollout.Cluster) {
	_ = fleet.ForAll(r.notJoined, func(node string) error {
		if err := cluster.Admit(ctx, node); err != nil && ctx.Err() == nil {
			r.warn(node, err)
		}
		return nil
	})
}
