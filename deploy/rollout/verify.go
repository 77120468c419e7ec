package rollout

import (
	"context"
	"time"

	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/nixeval"
)

// failedUnitTimeout is how long a unit may be failed at the end of a run. A failed unit rarely recovers.
const failedUnitTimeout = 20 * time.Second

// Verify waits until the conditions of the engines and the additional ones hold; with no timeout it does not
// wait. It adjusts existing
// members before it waits, because other nodes may depend on the adjustment, and new members after it, when
// they have joined.
func (cluster Cluster) Verify(ctx context.Context, hive *nixeval.Hive, nodes []nixeval.Node, parallel int, more []check.Condition, timeout time.Duration) error {
	if len(cluster.engines) == 0 {
		return nil
	}
	var members, newMembers []string
	unreachable := !cluster.Running()
	for _, n := range nodes {
		unreachable = unreachable || cluster.IsUnreachable(n.Name)
		switch {
		case cluster.IsCurrentMember(n.Name) && !cluster.IsUnreachable(n.Name):
			members = append(members, n.Name)
		case hive.Unit(n.Unit).Deployment.Engine != nil:
			newMembers = append(newMembers, n.Name)
		}
	}
	err := cluster.AdjustMembers(ctx, members)
	switch {
	case timeout == 0 && (err != nil || unreachable): // without a check, an engine that does not answer yet is not waited for
		return err
	case timeout == 0:
		return cluster.AdjustMembers(ctx, newMembers)
	case err != nil: // the API may be restarting; the check waits for it, or reports what is missing
		newMembers = append(members, newMembers...)
	}
	var conditions []check.Condition
	for _, e := range cluster.Engines() {
		conditions = append(conditions, engine.Conditions(e, false)...)
	}
	for _, c := range append(inspect.MemberConditions(cluster.Engines(), nodes, parallel), more...) {
		c.Within = failedUnitTimeout
		conditions = append(conditions, c)
	}
	checkCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if _, err := check.Await(checkCtx, conditions, cluster.send); err != nil {
		return err
	}
	return cluster.AdjustMembers(ctx, newMembers)
}
