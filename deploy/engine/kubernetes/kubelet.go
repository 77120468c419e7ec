package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
)

const (
	kubeletUnit = "kubelet.service"
	// maxLeaseAge is the maximum age of the lease of a working kubelet. A kubelet renews its lease every ten seconds.
	maxLeaseAge = 20 * time.Second
)

// FindFaults implements [engine.Inspector]. A kubelet that was never started is no fault, because a node that has not joined yet
// does not start its kubelet. A missing container runtime is no fault either, because a node has only one of the runtimes.
func (e *kubeadm) FindFaults(ctx context.Context, node string) ([]engine.Fault, error) {
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
