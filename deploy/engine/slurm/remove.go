package slurm

import (
	"context"
	"errors"

	"github.com/nixbench/nixbench/deploy/engine/batch"
	"github.com/nixbench/nixbench/deploy/failure"
)

// RemoveMember implements [engine.MemberRemover]. It stops slurmd, which would register again, and deletes the
// node from the controller's list.
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
	if _, err = e.runOnController(ctx, "scontrol", "delete", "nodename="+name); err == nil {
		return nil
	}
	if stopErr == nil {
		err = errors.Join(err, batch.ControlUnit(context.WithoutCancel(ctx), e.Cluster, name, "start", "slurmd.service"))
	}
	return failure.On(name, err)
}
