package slurm

import (
	"context"
	"errors"

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
	stopErr := e.systemctl(ctx, name, "stop") // may fail: the machine may be lost, or new and without slurmd
	if _, err = e.runOnController(ctx, "scontrol", "delete", "nodename="+name); err == nil {
		return nil
	}
	if stopErr == nil {
		err = errors.Join(err, e.systemctl(context.WithoutCancel(ctx), name, "start"))
	}
	return failure.On(name, err)
}

// systemctl starts or stops slurmd on a node.
func (e *Engine) systemctl(ctx context.Context, name, verb string) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	_, err := e.Run(ctx, name, nil, "systemctl", verb, "slurmd.service")
	return err
}
