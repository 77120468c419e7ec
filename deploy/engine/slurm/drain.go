package slurm

import (
	"context"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/engine"
)

func (c *client) MustDrain(_ string, n node, o engine.DrainOptions) bool {
	return !o.Removal || n.isReady() || n["AnyReady"] != "" // a machine with hollow nodes, of which one works
}

// Mark implements [batch.System]. It sets the state DRAIN of the nodes, with one command for all nodes with the same reason. A node that an
// administrator has set to DOWN keeps the administrator's reason, so that nixbench does not end this drain: SLURM makes a node that is only
// DOWN available as soon as its slurmd registers or answers (ReturnToService).
func (c *client) Mark(ctx context.Context, all map[string]node, nodes []string) error {
	reasons := map[string][]string{} // the reason of a drain → the nodes
	for _, name := range nodes {
		reason := drainReason
		if n := all[name]; n.isSetDown() {
			reason = n["Reason"]
		}
		reasons[reason] = append(reasons[reason], name)
	}
	for reason, nodes := range reasons {
		if err := c.setState(ctx, namesOf(all, nodes), "drain", "reason="+reason); err != nil {
			return engine.NewDrainError(nodes[0], err)
		}
	}
	return nil
}

// namesOf returns the names that the given nodes have in SLURM, as one list for SLURM's commands. registered contains all nodes in SLURM.
func namesOf(registered map[string]node, nodes []string) string {
	var names []string
	for _, name := range nodes {
		names = append(names, registered[name]["NodeName"])
	}
	return strings.Join(names, ",")
}

func (c *client) ListJobs(_ string, n node) []string {
	return []string{"squeue", "--noheader", "--nodelist=" + n["NodeName"], "--format=%i",
		"--states=RUNNING,COMPLETING,SUSPENDED,CONFIGURING,STAGE_OUT,STOPPED,SIGNALING"}
}

// Unmark implements [batch.System]. Nodes that nixbench has removed stay drained until nixbench admits them again.
func (c *client) Unmark(ctx context.Context, all map[string]node, nodes []string) error {
	return c.undrain(ctx, all, slices.DeleteFunc(nodes, func(name string) bool { return all[name].isRemoved() }))
}

// undrain ends the drain of nodes. It uses UNDRAIN and not RESUME, because RESUME would make a node available that is down.
func (c *client) undrain(ctx context.Context, registered map[string]node, nodes []string) error {
	if len(nodes) == 0 {
		return nil
	}
	return c.setState(ctx, namesOf(registered, nodes), "undrain")
}

// removedReason is the reason that nixbench sets for a node of the static list in slurm.conf that it has removed. If the node was
// drained before by an administrator or SLURM, the reason of that drain follows.
const removedReason = "nixbench: it was removed"

// Remove implements [batch.System]. SLURM does not delete nodes that are in slurm.conf. So such a node is drained and set to
// DOWN, until nixbench admits it again or the controller gets another slurm.conf. DOWN alone is not enough: SLURM makes a node that is only
// DOWN available again when it processes the answer to a ping, and the node may have sent that answer before its slurmd was stopped.
func (c *client) Remove(ctx context.Context, _ string, n node, _ error) error {
	if !n.isStatic() {
		_, err := c.RunOnHead(ctx, "scontrol", "delete", "nodename="+n["NodeName"])
		return err
	}
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
