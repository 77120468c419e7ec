package slurm

import (
	"context"
	"errors"
	"strings"

	"github.com/nixbench/nixbench/deploy/failure"
)

// removedReason is the reason of a node of a static list that was removed. If an administrator or SLURM had drained the node, the reason of that drain follows.
const removedReason = "nixbench: it was removed"

// RemoveMember implements [engine.MemberRemover]. It stops slurmd, which would register again, and deletes the
// node from the controller's list. SLURM does not delete nodes of slurm.conf: such a node is drained and set to DOWN,
// until it is admitted again, or until the controller has another slurm.conf.
func (e *Engine) RemoveMember(ctx context.Context, name string) error {
	nodes, err := e.Nodes(ctx)
	switch {
	case errors.Is(err, errNoController):
		return nil
	case err != nil:
		return failure.On(name, err)
	case nodes[name] == nil:
		return nil
	}
	stopErr := e.ControlUnit(ctx, name, "stop", "slurmd.service") // may fail: the machine may be lost, or new and without slurmd
	if nodes[name].isStatic() {
		err = e.takeDown(ctx, nodes[name])
	} else {
		_, err = e.RunOnHead(ctx, "scontrol", "delete", "nodename="+nodes[name]["NodeName"])
	}
	if err == nil {
		return nil
	}
	if stopErr == nil {
		err = errors.Join(err, e.ControlUnit(context.WithoutCancel(ctx), name, "start", "slurmd.service"))
	}
	return failure.On(name, err)
}

// takeDown drains a node and sets it to DOWN. The drain is needed because SLURM makes a node that is DOWN available again when it
// processes the answer to a ping, and the node may have sent that answer before its slurmd was stopped.
func (e *Engine) takeDown(ctx context.Context, n node) error {
	reason := removedReason
	if n.IsOutOfService() {
		reason += "; drained before: " + strings.TrimPrefix(n["Reason"], removedReason+"; drained before: ")
	}
	for _, state := range []string{"drain", "down"} {
		if err := e.setState(ctx, n["NodeName"], state, "reason="+reason); err != nil {
			return err
		}
	}
	return nil
}
