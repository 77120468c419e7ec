package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
)

// RemoveMember implements [engine.Engine]. It removes the etcd member of the node, resets the node, and deletes the Node
// object, in this order. The etcd member is removed first: if etcd refuses the removal because quorum would be lost, the etcd
// data of the node must stay. Without these data, a member that etcd still counts cannot rejoin. The Node object is deleted last,
// so that the next run repeats an interrupted removal.
func (e *Engine) RemoveMember(ctx context.Context, node string) error {
	nodes, err := e.Nodes(ctx)
	if err != nil {
		return failure.On(node, fmt.Errorf("delete from the cluster: %w", err))
	}
	n, registered := nodes[node]
	if !registered || hasControlPlaneLabel(n) || e.IsControlPlane(node) {
		if err := e.removeEtcdMember(ctx, node); err != nil {
			return failure.On(node, fmt.Errorf("etcd: %w", err))
		}
	}
	if n.Get(`metadata.labels.nixbench\.dev/hollow-machine`).Bool() { // the nodes that it simulates; Kubernetes then deletes their pods
		if _, err := e.Kubectl(ctx, "", "delete", "nodes", "-l", HollowLabel+"="+node, "--wait=false"); err != nil && !errors.Is(err, ErrNoControlPlane) {
			return failure.On(node, fmt.Errorf("delete its hollow nodes from the cluster: %w", err))
		}
	}
	resetErr := e.resetNode(ctx, node)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if registered {
		// ErrNoControlPlane means that the removed node was the only control plane, so the cluster no longer exists.
		if _, err := e.Kubectl(ctx, "", "delete", "node", node, "--ignore-not-found"); err != nil && !errors.Is(err, ErrNoControlPlane) {
			return errors.Join(resetErr, failure.On(node, fmt.Errorf("delete from the cluster: %w", err)))
		}
	}
	return resetErr
}

// resetNode deletes the cluster state on a node, so that the node can join again if the user keeps its machine. It does nothing
// if the node cannot be reached or has not joined the cluster.
func (e *Engine) resetNode(ctx context.Context, node string) error {
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

const (
	etcdctlTimeout     = 10 * time.Second // the time limit of one call of etcdctl; shorter than [engine.CommandTimeout], so that etcdctl's error reaches the user
	etcdRemovalTimeout = time.Minute      // how long the removal of a member is repeated while etcd refuses the removal
)

// removeEtcdMember removes the etcd member of a control plane that is being removed or that no longer exists. This is necessary
// because the failure of another member can lose quorum while etcd still counts a member that is down. etcd refuses a removal
// that would lose quorum. If etcd may accept the removal later, removeEtcdMember retries it for etcdRemovalTimeout.
func (e *Engine) removeEtcdMember(ctx context.Context, node string) error {
	return engine.Retry(ctx, etcdRemovalTimeout, mayAcceptLater, func() error { return e.tryRemoveMember(ctx, node) })
}

// tryRemoveMember lists the members of etcd and removes the member of the node. It returns nil if etcd has no such member: an
// earlier removal may have succeeded although etcdctl did not receive the answer.
func (e *Engine) tryRemoveMember(ctx context.Context, node string) (err error) {
	for _, other := range e.NodesOf(ControlPlane) {
		if other == node {
			continue
		}
		var list []byte
		if list, err = e.etcdctl(ctx, other, "member", "list", "-w", "json", "--hex"); err != nil {
			continue
		}
		answer, invalid := ParseJSON(list)
		if invalid != nil {
			err = failure.On(other, fmt.Errorf("etcdctl %w", invalid))
			continue
		}
		members := answer.Get("members").Array()
		i := slices.IndexFunc(members, func(m gjson.Result) bool { return m.Get("name").String() == node })
		if i < 0 {
			return nil
		}
		_, err = e.etcdctl(ctx, other, "member", "remove", members[i].Get("ID").String())
		if err != nil && strings.Contains(err.Error(), unhealthyCluster) {
			err = fmt.Errorf("its member cannot be removed while another member is down; repair that one first: %w", err)
		}
		return err
	}
	return err
}

// unhealthyCluster is in the error of etcd if the removal of a member would lose quorum. etcd counts a restarted member as healthy only after
// some seconds.
const unhealthyCluster = "unhealthy cluster"

// mayAcceptLater reports whether etcd may accept a removal later that has failed with err. etcd does not answer a request in time while it
// elects a leader or while the disk is slow.
func mayAcceptLater(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "context deadline exceeded") ||
		strings.Contains(err.Error(), "request timed out") || strings.Contains(err.Error(), unhealthyCluster)
}

func (e *Engine) etcdctl(ctx context.Context, node string, args ...string) ([]byte, error) {
	const pki = "/etc/kubernetes/pki/etcd/"
	return e.Command(ctx, node, append([]string{"etcdctl", "--endpoints=https://127.0.0.1:2379", "--command-timeout=" + etcdctlTimeout.String(),
		"--cacert=" + pki + "ca.crt", "--cert=" + pki + "server.crt", "--key=" + pki + "server.key"}, args...)...)
}
