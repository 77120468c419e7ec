package slurm

import (
	"context"
	"strings"
)

// removedReason is the reason that nixbench sets for a node of the static list in slurm.conf that it has removed. If the node was
// drained before by an administrator or SLURM, the reason of that drain follows.
const removedReason = "nixbench: it was removed"

// Remove implements [batch.System]. SLURM does not delete nodes that are in slurm.conf. So such a node is drained and set to
// DOWN, until nixbench admits it again or the controller gets another slurm.conf.
func (c *client) Remove(ctx context.Context, _ string, n node, _ error) error {
	if n.isStatic() {
		return c.takeDown(ctx, n)
	}
	_, err := c.RunOnHead(ctx, "scontrol", "delete", "nodename="+n["NodeName"])
	return err
}

// takeDown drains a node and sets it to DOWN. DOWN alone is not enough: SLURM makes a node that is only DOWN available again when
// it processes the answer to a ping, and the node may have sent that answer before its slurmd was stopped.
func (c *client) takeDown(ctx context.Context, n node) error {
	reason := removedReason
	if n.isOutOfService() {
		reason += "; drained before: " + strings.TrimPrefix(n["Reason"], removedReason+"; drained before: ")
	}
	for _, state := range []string{"drain", "down"} {
		if err := c.setState(ctx, n["NodeName"], state, "reason="+reason); err != nil {
			return err
		}
	}
	return nil
}
