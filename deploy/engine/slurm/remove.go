package slurm

import (
	"context"
	"errors"

	"github.com/nixbench/nixbench/deploy/engine/batch"
	"github.com/nixbench/nixbench/deploy/failure"
)

// removedReason is the reason of a node of a static list that was removed.
const removedReason = "nixbench: it was removed"

// RemoveMember implements [engine.MemberRemover]. It stops slurmd, which would register again, and deletes the
// node from the controller's list. SLURM does not delete nodes of slurm.conf: such a node is set to DOWN, until its slurmd
// registers again, or until the controller has another slurm.conf.
func (e *Engine) RemoveMember(ctx context.Context, name string) error {
	nodes, err := e.listNodes(ctx)
	switch {
	case errors.Is(err, errNoController):
		return nil
	case err != nil:
		return failure.On(name, err)
	case nodes[name] == nil:
		return nil
	}
	stopErr := batch.ControlUnit(ctx, e.Cluster, name, "stop", "slurmd.service") // may fail: the machine may be lost, or new and without slurmd
	if nodes[name].isStatic() {
		err = e.takeDown(ctx, nodes[name])
	} else {
		_, err = e.runOnController(ctx, "scontrol", "delete", "nodename="+nodes[name]["NodeName"])
	}
	if err == nil {
		return nil
	}
	if stopErr == nil {
		err = errors.Join(err, batch.ControlUnit(context.WithoutCancel(ctx), e.Cluster, name, "start", "slurmd.service"))
	}
	return failure.On(name, err)
}

// takeDown sets a node to DOWN and then ends its drain by nixbench, so that it takes jobs when its slurmd registers again, and not before.
func (e *Engine) takeDown(ctx context.Context, n node) error {
	name := n["NodeName"]
	_, err := e.runOnController(ctx, "scontrol", "update", "nodename="+name, "state=down", "reason="+removedReason)
	if err == nil && n.isDrainedByUs() {
		err = e.undrain(ctx, map[string]node{name: n}, []string{name})
	}
	return err
}
