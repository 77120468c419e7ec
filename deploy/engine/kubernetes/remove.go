package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nixbench/nixbench/deploy/engine/kubernetes/api"
	"github.com/nixbench/nixbench/deploy/failure"
)

// RemoveMember implements [engine.Engine]. It removes the etcd member of the node, resets the node, and deletes the Node
// object, in this order. The etcd member is removed first: if etcd refuses the removal because quorum would be lost, the etcd
// data of the node must stay. Without these data, a member that etcd still counts cannot rejoin. The Node object is deleted last,
// so that the next run repeats an interrupted removal.
func (e remover) RemoveMember(ctx context.Context, node string) error {
	nodes, err := e.Nodes(ctx)
	if err != nil {
		return failure.On(node, fmt.Errorf("delete from the cluster: %w", err))
	}
	n, registered := nodes[node]
	if !registered || hasControlPlaneLabel(n) || e.IsControlPlane(node) {
		if err := etcd(e).removeEtcdMember(ctx, node); err != nil {
			return failure.On(node, fmt.Errorf("etcd: %w", err))
		}
	}
	if n.Get(`metadata.labels.nixbench\.dev/hollow-machine`).Bool() {
		if err := e.removeHollow(ctx, node); err != nil {
			return err
		}
	}
	resetErr := e.resetNode(ctx, node)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if registered {
		// api.ErrNoControlPlane means that the removed node was the only control plane, so the cluster no longer exists.
		if _, err := e.Kubectl(ctx, "", "delete", "node", node, "--ignore-not-found"); err != nil && !errors.Is(err, api.ErrNoControlPlane) {
			return errors.Join(resetErr, failure.On(node, fmt.Errorf("delete from the cluster: %w", err)))
		}
	}
	return resetErr
}

// resetNode deletes the cluster state on a node, so that the node can join again if the user keeps its machine. It does nothing
// if the node cannot be reached or has not joined the cluster.
func (e remover) resetNode(ctx context.Context, node string) error {
	if _, err := e.Command(ctx, node, "test", "-e", "/etc/kubernetes/kubelet.conf"); err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	_, err := e.Run(ctx, node, nil, "nixbench-kubernetes-reset", "--yes", "--forgotten")
	if err != nil {
		return failure.On(node, fmt.Errorf("reset: %w", err))
	}
	return nil
}
