package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/kubernetes/api"
	"github.com/nixbench/nixbench/deploy/event"
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
func (e *kubeadm) removeEtcdMember(ctx context.Context, node string) error {
	end := time.Now().Add(etcdRemovalTimeout)
	return engine.Poll(ctx, engine.PollInterval, func() (bool, error) {
		mayAcceptLater, err := e.tryRemoveMember(ctx, node)
		if err == nil || !mayAcceptLater || time.Now().After(end) {
			return err == nil, err
		}
		return false, nil
	})
}

// tryRemoveMember lists the members of etcd and removes the member of the node. It returns nil if etcd has no such member: an
// earlier removal may have succeeded although etcdctl did not receive the answer. If the removal fails, mayAcceptLater says
// whether etcd may accept the removal later.
func (e *kubeadm) tryRemoveMember(ctx context.Context, node string) (mayAcceptLater bool, err error) {
	for _, other := range e.NodesOf(ControlPlane) {
		if other == node {
			continue
		}
		var list []byte
		list, err = e.etcdctl(ctx, other, "", "member", "list", "-w", "json", "--hex")
		if err != nil {
			continue
		}
		answer, invalid := api.ParseJSON(list)
		if invalid != nil {
			err = failure.On(other, fmt.Errorf("etcdctl %w", invalid))
			continue
		}
		members := answer.Get("members").Array()
		i := slices.IndexFunc(members, func(m gjson.Result) bool { return m.Get("name").String() == node })
		if i < 0 {
			return false, nil
		}
		_, err = e.etcdctl(ctx, other, "", "member", "remove", members[i].Get("ID").String())
		if err == nil {
			return false, nil
		}
		if isTimeout(err) {
			return true, err
		}
		if down := e.listFailedMembers(ctx, other, node, members); len(down) > 0 {
			return false, fmt.Errorf("removing its member would lose quorum, because etcd is down on %s; repair that one first: %w", event.Abbreviate(down, ", "), err)
		}
		return strings.Contains(err.Error(), "unhealthy cluster"), err // etcd counts a restarted member as healthy only after some seconds
	}
	return false, err
}

// isTimeout reports whether etcd did not answer a request in time, such as while it elects a leader or while the disk is slow.
func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "context deadline exceeded") ||
		strings.Contains(err.Error(), "request timed out")
}

// listFailedMembers returns the names of the etcd members that do not answer, without the member of node. It runs etcdctl on the
// node that from names.
func (e *kubeadm) listFailedMembers(ctx context.Context, from, node string, members []gjson.Result) []string {
	var down []string
	for _, m := range members {
		name := m.Get("name").String()
		if name == node {
			continue
		}
		if _, err := e.etcdctl(ctx, from, m.Get("clientURLs.0").String(), "endpoint", "health"); err != nil {
			down = append(down, cmp.Or(name, m.Get("peerURLs.0").String())) // etcd reports no name of a member that has never started
		}
	}
	return down
}

func (e *kubeadm) etcdctl(ctx context.Context, node, url string, args ...string) ([]byte, error) {
	const pki = "/etc/kubernetes/pki/etcd/"
	return e.Command(ctx, node, append([]string{"etcdctl", "--endpoints=" + cmp.Or(url, "https://127.0.0.1:2379"),
		"--command-timeout=" + etcdctlTimeout.String(),
		"--cacert=" + pki + "ca.crt", "--cert=" + pki + "server.crt", "--key=" + pki + "server.key"}, args...)...)
}

// removeHollow deletes the hollow nodes that a machine simulates. Kubernetes then deletes the pods of these nodes.
func (e *Engine) removeHollow(ctx context.Context, machine string) error {
	_, err := e.Kubectl(ctx, "", "delete", "nodes", "-l", HollowLabel+"="+machine, "--wait=false")
	if err != nil && !errors.Is(err, api.ErrNoControlPlane) {
		return failure.On(machine, fmt.Errorf("delete its hollow nodes from the cluster: %w", err))
	}
	return nil
}
