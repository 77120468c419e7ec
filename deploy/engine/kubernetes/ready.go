package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
)

// WaitReady implements [engine.Engine]. It waits until the kubelet of the member works with the current
// configuration, and until the API server of a control plane answers. Without the wait for the API server,
// the API could be unavailable when the next node is drained.
func (e *Engine) WaitReady(ctx context.Context, node string, report engine.Report) error {
	return engine.AwaitReady(ctx, node, report, func(ctx context.Context) error { return e.checkReady(ctx, node) },
		e.explainMembers(func(m string) bool { return m == node }))
}

// checkReady returns nil if the node is Ready and works with its current configuration, or if the node is
// neither a member nor in the hive. Otherwise the error is the reason why the node is not ready.
func (e *Engine) checkReady(ctx context.Context, node string) error {
	nodes, err := e.listNodes(ctx)
	n, member := nodes[node]
	switch {
	case err != nil:
		return err
	case !member && !e.Has(node):
		return nil
	case !member:
		if how := e.describeJoin(ctx, node); how != "" {
			return fmt.Errorf("it is not registered: it is at %s", how)
		}
		return errors.New("it is not registered")
	case !isReady(n):
		return fmt.Errorf("it is not Ready: %s", n.Get(`status.conditions.#(type=="Ready").message`).String())
	}
	return e.checkWorking(ctx, node)
}

// checkWorking returns nil if the programs of the node work with the current configuration. Otherwise the
// error is the reason why they do not work.
func (e *Engine) checkWorking(ctx context.Context, node string) error {
	if e.isConfiguring(ctx, node) {
		_, text := e.readPhase(ctx, node)
		return fmt.Errorf("its settings are still being applied%s", text)
	}
	if e.IsControlPlane(node) { // a control plane is Ready even if its own API server or etcd is down
		if why := e.explainAPIFailure(ctx, node); why != "" {
			return errors.New("its own API server is not ready: " + why)
		}
	}
	return e.checkKubeletReported(ctx, node)
}

// isConfiguring reports whether nixbench-kubernetes.service, the service that applies new settings, is running on
// the node. It returns false if the node cannot be reached.
func (e *Engine) isConfiguring(ctx context.Context, node string) bool {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	out, err := e.Run(ctx, node, nil, "systemctl", "show", "--property=SubState", "--value", "nixbench-kubernetes.service")
	state := strings.TrimSpace(string(out))
	return err == nil && (state == "running" || state == "auto-restart" || strings.HasPrefix(state, "start"))
}

// Uncordon implements [engine.Engine]. A node that was already cordoned before the drain stays cordoned.
// Uncordon retries for up to apiTimeout while the API is unavailable, so that the node does not stay cordoned.
func (e *Engine) Uncordon(ctx context.Context, node string) error {
	isTemporary := func(err error) bool { return !errors.Is(err, errNoControlPlane) && !isDefiniteError(err) }
	err := retry(ctx, isTemporary, func() error {
		nodes, err := e.listNodes(ctx)
		if err != nil {
			return err
		}
		return e.removeDrainMark(ctx, node, drainMark(nodes[node]).String())
	})
	if err == nil || errors.Is(err, errNoControlPlane) {
		return nil
	}
	return failure.On(node, fmt.Errorf("uncordon: %w", shortenError(ctx, err)))
}

// removeDrainMark uncordons the node and then removes drainedAnnotation, whose value is mark. It does nothing
// if mark is empty. The annotation is removed last, so that the next run repeats both steps if this run is
// killed between them.
func (e *Engine) removeDrainMark(ctx context.Context, node, mark string) error {
	if mark == "" {
		return nil
	}
	if !wasCordonedBefore(mark) {
		if _, err := e.runKubectl(ctx, "", "uncordon", node); err != nil {
			return err
		}
	}
	if _, err := e.runKubectl(ctx, "", "annotate", "node", node, drainedAnnotation+"-"); err != nil && !isNotFoundError(err) {
		return err
	}
	return nil
}
