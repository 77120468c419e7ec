package slurm

import (
	"context"
	"strings"
)

// removedReason is the reason of a node of a static list that was removed. If an administrator or SLURM had drained the node, the reason of that drain follows.
const removedReason = "nixbench: it was removed"

// Remove implements [batch.System]. SLURM does not delete nodes of slurm.conf: such a node is drained and set to DOWN,
// until it is admitted again, or until the controller has another slurm.conf.
func (c *client) Remove(ctx context.Context, _ string, n node, _ error) error {
	if n.isStatic() {
		return c.takeDown(ctx, n)
	}
	_, err := c.RunOnHead(ctx, "scontrol", "delete", "nodename="+n["NodeName"])
	return err
}

// takeDown drains a node and sets it to DOWN. The drain is needed because SLURM makes a node that is DOWN available again when it
// processes the answer to a ping, and the node may have sent that answer before its slurmd was stopped.
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
