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
)

// RemoveMember implements [engine.MemberRemover]. etcd comes first, and decides: it keeps a member
// that it cannot spare, and what such a member has on its disk must stay, too. With another
// cluster's data, a member that it still counts would not be let in, or would be let in and break it.
// Last comes the node's entry: whoever is cut short begins again.
func (e *Engine) RemoveMember(ctx context.Context, node string) error {
	nodes, err := e.listNodes(ctx)
	if err != nil {
		return fmt.Errorf("%s: delete from the cluster: %w", node, err)
	}
	n, registered := nodes[node]
	if !registered || isControlPlane(n) || e.IsControlPlane(node) {
		if err := e.removeEtcdMember(ctx, node); err != nil {
			return fmt.Errorf("%s: etcd: %w", node, err)
		}
	}
	resetErr := e.resetNode(ctx, node)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if registered {
		// The only control plane has taken the cluster with it.
		if _, err := e.kubectl(ctx, "", "delete", "node", node, "--ignore-not-found"); err != nil && !errors.Is(err, errNoControlPlane) {
			return errors.Join(resetErr, fmt.Errorf("%s: delete from the cluster: %w", node, err))
		}
	}
	return resetErr
}

// resetNode has a machine forget what it is a member of, so that it comes in again should it
// stay after all. One that does not answer, or was made anew, has nothing to forget.
func (e *Engine) resetNode(ctx context.Context, node string) error {
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if _, err := e.Run(asking, node, nil, "test", "-e", "/etc/kubernetes/kubelet.conf"); err != nil {
		return nil
	}
	ctx, cancel = context.WithTimeout(ctx, resetTimeout)
	defer cancel()
	_, err := e.Run(ctx, node, nil, "nixbench-kubernetes-reset", "--yes", "--forgotten")
	if err != nil {
		return fmt.Errorf("%s: reset: %w", node, err)
	}
	return nil
}

// IsControlPlane tells whether the hive has the node as one.
func (e *Engine) IsControlPlane(node string) bool {
	return slices.Contains(e.controlPlanes(), node)
}

// removeEtcdMember removes the member of a control plane that is gone, or is about to go: while etcd
// counts it, the next failure can cost the quorum. etcd refuses where that would cost it now.
func (e *Engine) removeEtcdMember(ctx context.Context, node string) error {
	var last error
	for _, other := range e.controlPlanes() {
		if other == node {
			continue
		}
		list, err := e.etcdctl(ctx, other, "", "member", "list", "-w", "json", "--hex")
		if err != nil {
			last = err
			continue
		}
		members := gjson.GetBytes(list, "members").Array()
		for _, m := range members {
			if m.Get("name").String() != node {
				continue
			}
			return e.retryEtcdRemoval(ctx, other, m, members)
		}
		return nil
	}
	return last
}

// retryEtcdRemoval tries for a while: a member that has just come back counts only after some seconds.
func (e *Engine) retryEtcdRemoval(ctx context.Context, from string, m gjson.Result, all []gjson.Result) error {
	for end := time.Now().Add(spareTimeout); ; {
		_, err := e.etcdctl(ctx, from, "", "member", "remove", etcdMemberID(m))
		if err == nil {
			return nil
		}
		if down := e.listFailedEtcd(ctx, from, m.Get("name").String(), all); len(down) > 0 {
			return fmt.Errorf("it cannot be spared while etcd is down on %s; mend that first: %w", abbreviate(down), err)
		}
		if time.Now().After(end) || !strings.Contains(err.Error(), "unhealthy cluster") {
			return err
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// listFailedEtcd are the members beside node that do not answer.
func (e *Engine) listFailedEtcd(ctx context.Context, from, node string, members []gjson.Result) []string {
	var down []string
	for _, m := range members {
		name := m.Get("name").String()
		if name == node {
			continue
		}
		if _, err := e.etcdctl(ctx, from, m.Get("clientURLs.0").String(), "endpoint", "health"); err != nil {
			down = append(down, cmp.Or(name, m.Get("peerURLs.0").String())) // one that has never started has no name
		}
	}
	return down
}

// etcdMemberID is in hex, as etcdctl reads it; old versions print a number.
func etcdMemberID(m gjson.Result) string {
	id := m.Get("ID")
	if id.Type == gjson.Number {
		return fmt.Sprintf("%x", id.Uint())
	}
	return strings.TrimPrefix(id.String(), "0x")
}

// etcdctl runs on a control plane, and asks its own member unless another URL is given.
func (e *Engine) etcdctl(ctx context.Context, node, url string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	const pki = "/etc/kubernetes/pki/etcd/"
	return e.Run(ctx, node, nil, append([]string{"etcdctl", "--endpoints=" + cmp.Or(url, "https://127.0.0.1:2379"),
		"--cacert=" + pki + "ca.crt", "--cert=" + pki + "server.crt", "--key=" + pki + "server.key"}, args...)...)
}
