package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
)

// WaitReady implements [engine.Engine]. It waits until the kubelet of the member works with the current configuration. On a control
// plane, it also waits until the API server answers: otherwise the API could be unavailable when nixbench drains the next node.
func (e *Engine) WaitReady(ctx context.Context, node string, report engine.Report) error {
	return engine.AwaitReady(ctx, node, report, func(ctx context.Context) error { return e.checkReady(ctx, node) },
		e.explainMembers(func(m string) bool { return m == node }))
}

// checkReady returns nil if the node is Ready and works with its current configuration, or if the node is
// neither a member nor in the hive. Otherwise the error is the reason why the node is not ready.
func (e *Engine) checkReady(ctx context.Context, node string) error {
	nodes, err := e.Nodes(ctx)
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
	case !IsReady(n):
		return fmt.Errorf("it is not Ready: %s", n.Get(`status.conditions.#(type=="Ready").message`).String())
	}
	return e.checkWorking(ctx, node)
}

func (e *Engine) checkWorking(ctx context.Context, node string) error {
	unit, err := e.ReadUnit(ctx, node, setupUnit) // it applies new settings
	if err == nil && (unit.Sub == "running" || unit.Sub == "auto-restart" || strings.HasPrefix(unit.Sub, "start")) {
		_, text := e.readPhase(ctx, node)
		return fmt.Errorf("its settings are still being applied%s", text)
	}
	if e.IsControlPlane(node) { // a control plane is Ready even if its own API server or etcd is down
		if err := e.checkOwnAPI(ctx, node); err != nil {
			return fmt.Errorf("its own API server is not ready: %w", err)
		}
	}
	return e.checkKubeletReported(ctx, node)
}

// checkOwnAPI returns nil if the API server of a control plane answers. The error has one line.
func (e *Engine) checkOwnAPI(ctx context.Context, node string) error {
	ctx, cancel := context.WithTimeout(ctx, engine.CommandTimeout)
	defer cancel()
	_, err := e.KubectlOn(ctx, node, "", "get", "--raw", "/readyz")
	if err == nil {
		return nil
	}
	if phase, text := e.readPhase(ctx, node); phase != "" && phase != "ready" {
		return fmt.Errorf("%s is at %s%s", node, phase, text)
	}
	return fmt.Errorf("%s: %w", node, engine.LastLine(errors.New(failure.TextOn(node, err))))
}

const (
	kubeletUnit = "kubelet.service"
	// maxLeaseAge is the maximum age of the lease of a working kubelet. A kubelet renews its lease every ten seconds.
	maxLeaseAge = 20 * time.Second
)

// FindFaults implements [engine.Inspector]. A kubelet that was never started is no fault, because a node that has not joined yet
// does not start its kubelet. A missing container runtime is no fault either, because a node has only one of the runtimes.
func (e *Engine) FindFaults(ctx context.Context, node string) ([]engine.Fault, error) {
	return e.Cluster.FindFaults(ctx, node, "containerd.service", "crio.service", kubeletUnit)
}

// checkKubeletReported returns nil if the kubelet runs, and has renewed its lease after its start and within maxLeaseAge. The
// Ready condition is not sufficient: it stays true for most of a minute after the kubelet has exited. The state of the systemd
// unit is not sufficient: systemd reports a kubelet that exits repeatedly as active. All times are from the clock of the node.
func (e *Engine) checkKubeletReported(ctx context.Context, node string) error {
	kubelet, err := e.ReadUnit(ctx, node, kubeletUnit)
	if err != nil {
		return err
	}
	if kubelet.Sub != "running" {
		return fmt.Errorf("its kubelet is %s", cmp.Or(kubelet.Sub, "unknown"))
	}
	out, err := e.Kubectl(ctx, "", "-n", "kube-node-lease", "get", "lease", node, "-o", "jsonpath={.spec.renewTime}")
	if err != nil {
		return err
	}
	renewed, err := time.Parse(time.RFC3339, string(out))
	if err != nil {
		return fmt.Errorf("its lease has no time: %w", err)
	}
	switch since := kubelet.Now.Sub(renewed); {
	case renewed.Before(kubelet.Since.Add(time.Second)): // systemd rounds the start time down to seconds
		return errors.New("its kubelet has not reported since it was started")
	case since > maxLeaseAge:
		return fmt.Errorf("its kubelet has not reported for %v", since.Round(time.Second))
	}
	return nil
}
