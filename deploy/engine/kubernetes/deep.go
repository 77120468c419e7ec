package kubernetes

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// Several deep checks may run at the same time, each in its own namespace. An interrupted check leaves
// its namespace behind. The label marks the namespaces of these checks.
const (
	probeLabel = "nixbench.dev/check"
	// probeNamespace is the prefix of the names of these namespaces.
	probeNamespace = "nixbench-check-"
	probeMaxAge    = 10 * time.Minute // an older namespace belongs to an interrupted check
)

const (
	podTimeout  = 30 * time.Second // for each of the three pods
	deepTimeout = 2 * time.Minute
)

// schedulableNodes returns the workers, or the control planes if there are no workers.
func (e *Engine) schedulableNodes() []string {
	var out []string
	for _, m := range e.Cluster.Members {
		if m.Role != ControlPlane {
			out = append(out, m.Node)
		}
	}
	if len(out) == 0 {
		return e.controlPlanes()
	}
	return out
}

// checkPodNetwork starts a server pod on one worker and requests it from another worker, by the address
// of the pod and by the name of a Service. It removes all that it created, and what earlier interrupted
// checks have left.
func (e *Engine) checkPodNetwork(ctx context.Context) error {
	s, err := e.clusterSettings()
	if err != nil {
		return err
	}
	workers := e.schedulableNodes()
	server, client := workers[0], workers[len(workers)-1]
	if err := e.removeStaleProbes(ctx); err != nil {
		return keepLastLine(err)
	}
	p := &probeRun{Engine: e, probe: s.Probe, namespace: probeNamespace + strings.ToLower(rand.Text()[:10])}
	defer p.cleanUp(ctx)
	if err := p.apply(ctx, p.probeObjects(server)); err != nil {
		return keepLastLine(err)
	}
	pod, err := p.awaitPod(ctx, "server", isReady)
	if err != nil {
		return fmt.Errorf("the server on %s: %w", server, err)
	}
	for name, url := range map[string]string{
		"to-pod":     "http://" + bracketIPv6(pod.Get("status.podIP").String()) + ":8080/hostname",
		"to-service": "http://server." + p.namespace + ".svc:8080/hostname",
	} {
		if err := p.requestURL(ctx, name, client, url); err != nil {
			return fmt.Errorf("from %s to %s, %s: %w", client, server, url, err)
		}
	}
	return nil
}

// removeStaleProbes deletes the namespaces of interrupted checks.
func (e *Engine) removeStaleProbes(ctx context.Context) error {
	namespaces, err := e.listObjects(ctx, "get", "namespaces", "-l", probeLabel)
	if err != nil {
		return err
	}
	for _, n := range namespaces {
		if n.Get("metadata.deletionTimestamp").Exists() || time.Since(n.Get("metadata.creationTimestamp").Time()) < probeMaxAge {
			continue
		}
		if _, err := e.runKubectl(ctx, "", "delete", "namespace", n.Get("metadata.name").String(), "--ignore-not-found", "--wait=false"); err != nil {
			return err
		}
	}
	return nil
}

// probeRun is one deep check, with its namespace.
type probeRun struct {
	*Engine
	probe     probe
	namespace string
}

func (p *probeRun) apply(ctx context.Context, o object) error {
	text, err := json.Marshal(o)
	if err == nil {
		_, err = p.runKubectl(ctx, string(text), "apply", "-f", "-")
	}
	return err
}

// awaitPod waits until done returns true for a pod, and returns the pod.
func (p *probeRun) awaitPod(ctx context.Context, name string, done func(pod gjson.Result) bool) (gjson.Result, error) {
	limit, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	var pod gjson.Result // as last observed
	for {
		out, err := p.runKubectl(limit, "", "-n", p.namespace, "get", "pod", name, "-o", "json")
		if err == nil {
			pod = gjson.ParseBytes(out)
			if done(pod) {
				return pod, nil
			}
		}
		if !sleep(limit, pollInterval) {
			return pod, p.explainPod(ctx, name, pod, err)
		}
	}
}

// bracketIPv6 puts brackets around an IPv6 address, and returns other addresses unchanged.
func bracketIPv6(address string) string {
	address = strings.TrimSpace(address)
	if strings.Contains(address, ":") {
		return "[" + address + "]"
	}
	return address
}

func (p *probeRun) requestURL(ctx context.Context, name, node, url string) error {
	if err := p.apply(ctx, p.pod(name, node, append(slices.Clone(p.probe.Get), url))); err != nil {
		return keepLastLine(err)
	}
	_, err := p.awaitPod(ctx, name, func(pod gjson.Result) bool { return pod.Get("status.phase").String() == "Succeeded" })
	return err
}

// explainPod returns why a pod did not reach its desired state: the last line of its log, or else its
// phase and the reason why its container waits.
func (p *probeRun) explainPod(ctx context.Context, name string, pod gjson.Result, err error) error {
	if logs, logErr := p.runKubectl(ctx, "", "-n", p.namespace, "logs", name, "--tail=1"); logErr == nil && len(logs) > 0 {
		return errors.New(firstLine(string(logs)))
	}
	if !pod.Exists() {
		return keepLastLine(err)
	}
	return fmt.Errorf("the pod is %s%s", pod.Get("status.phase").String(), waitingReason(pod))
}

// cleanUp deletes the namespace. It also does so after ctx has ended.
func (p *probeRun) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandTimeout*2)
	defer cancel()
	// If this fails, a later check removes the namespace.
	_, _ = p.runKubectl(ctx, "", "delete", "namespace", p.namespace, "--ignore-not-found", "--timeout="+commandTimeout.String())
}

type object = map[string]any

func (p *probeRun) probeObjects(server string) object {
	pod := p.pod("server", server, p.probe.Serve)
	pod["spec"].(object)["restartPolicy"] = "Always"
	return object{"apiVersion": "v1", "kind": "List", "items": []object{
		{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": p.namespace, "labels": object{probeLabel: ""}}},
		{"apiVersion": "v1", "kind": "Service", "metadata": object{"name": "server", "namespace": p.namespace},
			"spec": object{"selector": object{"probe": "server"}, "ports": []object{{"port": 8080}}}},
		pod,
	}}
}

// pod returns a pod that is bound to its node directly. The scheduler is not checked, and it would not
// use a tainted control plane, which may be the only node.
func (p *probeRun) pod(name, node string, command []string) object {
	return object{"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"name": name, "namespace": p.namespace, "labels": object{"probe": name}},
		"spec": object{
			"nodeName": node, "restartPolicy": "OnFailure", "terminationGracePeriodSeconds": 0,
			"tolerations": []object{{"operator": "Exists"}},
			"containers":  []object{{"name": "probe", "image": p.probe.Image, "imagePullPolicy": "IfNotPresent", "command": command}},
		}}
}
