package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// Leave drains a node, as kubectl drain does. For good, the node is also reset and deleted,
// and with a control plane goes its member of etcd. A node that does not answer any more
// is taken out from the other side, and nobody waits for its pods to end.
func (e *Engine) Leave(ctx context.Context, node string, good bool) error {
	nodes, err := e.nodes(ctx)
	if errors.Is(err, errNone) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: drain: %w", node, err)
	}
	n, member := nodes[node]
	there := !good || e.answers(ctx, node)
	if member && there {
		if err := e.drain(ctx, node, n, good); err != nil {
			return fmt.Errorf("%s: drain: %w", node, err)
		}
	}
	if !good {
		return nil
	}
	if there {
		reset, cancel := context.WithTimeout(ctx, resetTimeout)
		defer cancel()
		// Where it fails Forget does what matters to the others.
		_, _ = e.Run(reset, node, nil, "kubeadm", "reset", "--force")
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return e.Forget(ctx, node)
}

// answers tells whether commands can be run on a node.
func (e *Engine) answers(ctx context.Context, node string) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := e.Run(ctx, node, nil, "true")
	return err == nil
}

func (e *Engine) drain(ctx context.Context, node string, n gjson.Result, good bool) error {
	if n.Get("spec.unschedulable").Bool() && !n.Get("metadata.annotations."+gjson.Escape(left)).Exists() && !good {
		return nil // somebody else has taken its work away, and will give it back
	}
	if _, err := e.kubectl(ctx, "", "annotate", "--overwrite", "node", node, left+"="+time.Now().UTC().Format(time.RFC3339)); err != nil {
		return err
	}
	limit := drainTimeout
	if good && !ready(n) {
		limit = 10 * time.Second // its pods cannot be seen to end
	}
	ctx, cancel := context.WithTimeout(ctx, limit+askTimeout)
	defer cancel()
	_, err := e.kubectl(ctx, "", "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force",
		"--timeout="+limit.String())
	if err != nil && good && !ready(n) {
		return nil
	}
	return err
}

// Forget implements [engine.Forgetter]. etcd comes first: with another cluster's data, a
// member that it still counts would not be let in, or would be let in and break it.
func (e *Engine) Forget(ctx context.Context, node string) error {
	nodes, err := e.nodes(ctx)
	if err != nil {
		return fmt.Errorf("%s: delete from the cluster: %w", node, err)
	}
	n, registered := nodes[node]
	if !registered || isControlPlane(n) || e.IsControlPlane(node) {
		if err := e.forgetEtcd(ctx, node); err != nil {
			return fmt.Errorf("%s: etcd: %w", node, err)
		}
	}
	if !registered {
		return nil
	}
	if _, err := e.kubectl(ctx, "", "delete", "node", node, "--ignore-not-found"); err != nil {
		return fmt.Errorf("%s: delete from the cluster: %w", node, err)
	}
	return nil
}

// IsControlPlane tells whether the hive has the node as one.
func (e *Engine) IsControlPlane(node string) bool {
	return slices.Contains(e.controlPlanes(), node)
}

// forgetEtcd removes the member of a control plane that is gone: while etcd counts it,
// the next failure can cost the quorum.
func (e *Engine) forgetEtcd(ctx context.Context, node string) error {
	var last error
	for _, other := range e.controlPlanes() {
		if other == node {
			continue
		}
		list, err := e.etcdctl(ctx, other, "member", "list", "-w", "json", "--hex")
		if err != nil {
			last = err
			continue
		}
		for _, m := range gjson.GetBytes(list, "members").Array() {
			if m.Get("name").String() == node {
				_, err := e.etcdctl(ctx, other, "member", "remove", memberID(m))
				return err
			}
		}
		return nil
	}
	return last
}

// memberID is in hex, as etcdctl reads it; old versions print a number.
func memberID(m gjson.Result) string {
	id := m.Get("ID")
	if id.Type == gjson.Number {
		return fmt.Sprintf("%x", id.Uint())
	}
	return strings.TrimPrefix(id.String(), "0x")
}

func (e *Engine) etcdctl(ctx context.Context, node string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	const pki = "/etc/kubernetes/pki/etcd/"
	return e.Run(ctx, node, nil, append([]string{"etcdctl", "--endpoints=https://127.0.0.1:2379",
		"--cacert=" + pki + "ca.crt", "--cert=" + pki + "server.crt", "--key=" + pki + "server.key"}, args...)...)
}

// Return gives work back to a node that we drained, once it is Ready and has taken over
// what has changed: a control plane may be without its API meanwhile, and the next node
// could not be drained.
func (e *Engine) Return(ctx context.Context, node string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var missing error
	for {
		nodes, err := e.nodes(ctx)
		n, member := nodes[node]
		switch {
		case errors.Is(err, errNone):
			return nil
		case err != nil:
			missing = err
		case !member:
			// Somebody has removed it meanwhile; the check at the end tells.
			return nil
		case !n.Get("metadata.annotations." + gjson.Escape(left)).Exists():
			return nil
		case !ready(n):
			missing = fmt.Errorf("it is not Ready: %s", n.Get(`status.conditions.#(type=="Ready").message`).String())
		case e.busy(ctx, node):
			_, text := e.phase(ctx, node)
			missing = fmt.Errorf("it is still taking over its settings%s", text)
		default:
			return e.uncordon(ctx, node)
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("%s: after %v it cannot be given work again: %w", node, readyTimeout, missing)
			}
			return context.Cause(ctx)
		}
	}
}

// busy tells whether the node's unit is at work. One that cannot be asked says nothing.
func (e *Engine) busy(ctx context.Context, node string) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	out, err := e.Run(ctx, node, nil, "systemctl", "show", "--property=SubState", "--value", "nixbench-kubernetes.service")
	state := strings.TrimSpace(string(out))
	return err == nil && (state == "running" || state == "auto-restart" || strings.HasPrefix(state, "start"))
}

// uncordon comes before the mark is removed: a run that is killed in between does it again.
func (e *Engine) uncordon(ctx context.Context, node string) error {
	if _, err := e.kubectl(ctx, "", "uncordon", node); err != nil {
		return fmt.Errorf("%s: uncordon: %w", node, err)
	}
	if _, err := e.kubectl(ctx, "", "annotate", "node", node, left+"-"); err != nil && !notFound(err) {
		return fmt.Errorf("%s: uncordon: %w", node, err)
	}
	return nil
}
