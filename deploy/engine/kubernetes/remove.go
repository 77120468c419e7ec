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
	"github.com/nixbench/nixbench/deploy/failure"
)

// RemoveMember implements [engine.MemberRemover]. It removes the etcd member of the node, resets the node,
// and deletes the Node object, in this order. The etcd member is removed first, because etcd refuses a
// removal that would lose quorum, and then the reset must not delete the etcd data of the node: a member
// that etcd still counts cannot rejoin without these data. The Node object is deleted last, so that the
// next run repeats an interrupted removal.
func (e *Engine) RemoveMember(ctx context.Context, node string) error {
	nodes, err := e.listNodes(ctx)
	if err != nil {
		return failure.On(node, fmt.Errorf("delete from the cluster: %w", err))
	}
	n, registered := nodes[node]
	if !registered || isControlPlane(n) || e.IsControlPlane(node) {
		if err := e.removeEtcdMember(ctx, node); err != nil {
			return failure.On(node, fmt.Errorf("etcd: %w", err))
		}
	}
	if n.Get(hollowMachineLabel).Bool() {
		if err := e.removeHollow(ctx, node); err != nil {
			return err
		}
	}
	resetErr := e.resetNode(ctx, node)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if registered {
		// With errNoControlPlane, the removed node was the only control plane, and the cluster no longer exists.
		if _, err := e.runKubectl(ctx, "", "delete", "node", node, "--ignore-not-found"); err != nil && !errors.Is(err, errNoControlPlane) {
			return errors.Join(resetErr, failure.On(node, fmt.Errorf("delete from the cluster: %w", err)))
		}
	}
	return resetErr
}

// resetNode deletes the cluster state on a node, so that the node can join again if its machine is not
// removed. It does nothing if the node cannot be reached or has not joined the cluster.
func (e *Engine) resetNode(ctx context.Context, node string) error {
	asking, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	if _, err := e.Run(asking, node, nil, "test", "-e", "/etc/kubernetes/kubelet.conf"); err != nil {
		return nil
	}
	ctx, cancel = context.WithTimeout(ctx, resetTimeout)
	defer cancel()
	_, err := e.Run(ctx, node, nil, "nixbench-kubernetes-reset", "--yes", "--forgotten")
	if err != nil {
		return failure.On(node, fmt.Errorf("reset: %w", err))
	}
	return nil
}

// IsControlPlane reports whether the node is a control plane in the hive.
func (e *Engine) IsControlPlane(node string) bool {
	return slices.Contains(e.NodesOf(ControlPlane), node)
}

// removeEtcdMember removes the etcd member of a control plane that is being removed or does not exist any
// more. While etcd counts a member that is down, the failure of another member can lose quorum. etcd
// refuses the removal if it would lose quorum. removeEtcdMember retries a removal for etcdRemovalTimeout if
// etcd may accept it later.
func (e *Engine) removeEtcdMember(ctx context.Context, node string) error {
	for end := time.Now().Add(etcdRemovalTimeout); ; {
		mayAcceptLater, err := e.tryRemoveEtcdMember(ctx, node)
		if err == nil || !mayAcceptLater || time.Now().After(end) {
			return err
		}
		if !engine.Sleep(ctx, engine.PollInterval) {
			return context.Cause(ctx)
		}
	}
}

// tryRemoveEtcdMember lists the members of etcd and removes that of the node. It returns nil if etcd has no such
// member: an earlier removal may have succeeded although etcdctl did not receive the answer. If the removal
// fails, tryRemoveEtcdMember reports whether etcd may accept it later.
func (e *Engine) tryRemoveEtcdMember(ctx context.Context, node string) (mayAcceptLater bool, err error) {
	for _, other := range e.NodesOf(ControlPlane) {
		if other == node {
			continue
		}
		var list []byte
		list, err = e.runEtcdctl(ctx, other, "", "member", "list", "-w", "json", "--hex")
		if err != nil {
			continue
		}
		answer, invalid := parseJSON(list)
		if invalid != nil {
			err = failure.On(other, fmt.Errorf("etcdctl %w", invalid))
			continue
		}
		members := answer.Get("members").Array()
		i := slices.IndexFunc(members, func(m gjson.Result) bool { return m.Get("name").String() == node })
		if i < 0 {
			return false, nil
		}
		_, err = e.runEtcdctl(ctx, other, "", "member", "remove", etcdMemberID(members[i]))
		if err == nil {
			return false, nil
		}
		if isEtcdTimeout(err) {
			return true, err
		}
		if down := e.listFailedEtcdMembers(ctx, other, node, members); len(down) > 0 {
			return false, fmt.Errorf("removing its member would lose quorum, because etcd is down on %s; repair that one first: %w", engine.Abbreviate(down, ", "), err)
		}
		return strings.Contains(err.Error(), "unhealthy cluster"), err // it counts a restarted member as healthy only after some seconds
	}
	return false, err
}

// isEtcdTimeout reports whether etcd did not answer a request in time, such as while it elects a leader or while the
// disk is slow.
func isEtcdTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "context deadline exceeded") ||
		strings.Contains(err.Error(), "request timed out")
}

// listFailedEtcdMembers returns the names of the etcd members that do not answer, without the member of node.
// It runs etcdctl on the node from.
func (e *Engine) listFailedEtcdMembers(ctx context.Context, from, node string, members []gjson.Result) []string {
	var down []string
	for _, m := range members {
		name := m.Get("name").String()
		if name == node {
			continue
		}
		if _, err := e.runEtcdctl(ctx, from, m.Get("clientURLs.0").String(), "endpoint", "health"); err != nil {
			down = append(down, cmp.Or(name, m.Get("peerURLs.0").String())) // etcd reports no name of a member that has never started
		}
	}
	return down
}

// etcdMemberID returns the ID of an etcd member in hexadecimal, which etcdctl requires as an argument. Old
// versions of etcdctl print the ID as a decimal number.
func etcdMemberID(m gjson.Result) string {
	id := m.Get("ID")
	if id.Type == gjson.Number {
		return fmt.Sprintf("%x", id.Uint())
	}
	return strings.TrimPrefix(id.String(), "0x")
}

// runEtcdctl runs etcdctl on a control plane. etcdctl connects to url, or to the local etcd member if url is
// empty. etcdctl's own timeout is shorter than commandTimeout, so that its error reaches the user.
func (e *Engine) runEtcdctl(ctx context.Context, node, url string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	const pki = "/etc/kubernetes/pki/etcd/"
	return e.Run(ctx, node, nil, append([]string{"etcdctl", "--endpoints=" + cmp.Or(url, "https://127.0.0.1:2379"),
		"--command-timeout=" + etcdctlTimeout.String(),
		"--cacert=" + pki + "ca.crt", "--cert=" + pki + "server.crt", "--key=" + pki + "server.key"}, args...)...)
}
