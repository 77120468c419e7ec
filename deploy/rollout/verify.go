package rollout

import (
	"context"
	"time"

	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/nixeval"
)

// failedUnitTimeout is how long the end of a run waits until no systemd unit is failed any more. It is short, because a failed
// systemd unit rarely recovers.
const failedUnitTimeout = 20 * time.Second

// Verify waits until the conditions of the engines and the conditions in more are fulfilled, for at most timeout; if timeout is 0,
// it does not wait. It adjusts settings of existing members (such as labels) before the wait, because other nodes may depend on
// the settings. It adjusts new members after the wait, when they have joined.
func (cluster Cluster) Verify(ctx context.Context, hive *nixeval.Hive, nodes []nixeval.Node, parallel int, more []check.Condition, timeout time.Duration) error {
	if len(cluster.engines) == 0 {
		return nil
	}
	var members, newMembers, all []string
	unreachable := !cluster.Running()
	for _, n := range nodes {
		unreachable = unreachable || cluster.IsUnreachable(n.Name)
		if hive.Unit(n.Unit).Deployment.Engine != nil {
			all = append(all, n.Name)
		}
		switch {
		case cluster.isCurrentMember(n.Name) && !cluster.IsUnreachable(n.Name):
			members = append(members, n.Name)
		case hive.Unit(n.Unit).Deployment.Engine != nil:
			newMembers = append(newMembers, n.Name)
		}
	}
	err := cluster.adjustMembers(ctx, members)
	switch {
	case timeout == 0 && (err != nil || unreachable): // with timeout 0, return without waiting for an engine that does not answer
		return err
	case timeout == 0:
		return cluster.adjustMembers(ctx, newMembers)
	case err != nil: // ignore the error for now: the API may be restarting, and the existing members are adjusted again after the wait
		newMembers = append(members, newMembers...)
	}
	conditions := inspect.EngineConditions(cluster.engines, nodes, parallel, engine.CheckOptions{Except: cluster.outOfService()}, cluster.newRepair(all).look)
	for _, c := range more {
		c.Within = failedUnitTimeout
		conditions = append(conditions, c)
	}
	checkCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if _, err := check.Await(checkCtx, conditions, cluster.send); err != nil {
		return err
	}
	return cluster.adjustMembers(ctx, newMembers)
}
