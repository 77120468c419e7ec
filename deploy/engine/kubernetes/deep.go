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

	"github.com/nixbench/nixbench/deploy/engine"
)

// Several deep checks may run at the same time, each in its own namespace. A check deletes its namespace at
// the end, unless it is interrupted.
const (
	probeLabel     = "nixbench.dev/check" // the label of each namespace of a deep check
	probeNamespace = "nixbench-check-"    // the prefix of the name of each such namespace
	probeMaxAge    = 10 * time.Minute     // an older namespace belongs to an interrupted check
)

const (
	podTimeout  = 30 * time.Second // of the wait for one of the three pods
	deepTimeout = 2 * time.Minute  // of the whole check, with retries
)

// schedulableNodes returns the workers in the hive, or the control planes if the hive has no workers.
func (e *Engine) schedulableNodes() []string {
	var out []string
	for _, m := range e.Cluster.Members {
		if m.Role != ControlPlane {
			out = append(out, m.Node)
		}
	}
	if len(out) == 0 {
		return e.NodesOf(ControlPlane)
	}
	return out
}

// checkPodNetwork starts a pod with a web server on one worker, and sends requests to it from pods on another
// worker: to the address of the pod, and to the name of a Service. At the end it deletes all objects that it
// has created. At the start it deletes the objects of interrupted checks.
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
	defer p.deleteNamespace(ctx)
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

// removeStaleProbes deletes the namespaces of interrupted checks, which are older than probeMaxAge.
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

// probeRun is the execution of one deep check.
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

// awaitPod reads a pod until done returns true for it, for up to podTimeout, and returns the pod.
func (p *probeRun) awaitPod(ctx context.Context, name string, done func(pod gjson.Result) bool) (gjson.Result, error) {
	limit, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	var pod gjson.Result // the last observed state
	for {
		out, err := p.runKubectl(limit, "", "-n", p.namespace, "get", "pod", name, "-o", "json")
		if err == nil {
			pod, err = parseJSON(out)
		}
		if err == nil && done(pod) {
			return pod, nil
		}
		if !engine.Sleep(limit, engine.PollInterval) {
			return pod, p.explainPod(ctx, name, pod, err)
		}
	}
}

// bracketIPv6 returns an IPv6 address in brackets, as URLs contain it. It returns other addresses unchanged.
func bracketIPv6(address string) string {
	address = strings.TrimSpace(address)
	if strings.Contains(address, ":") {
		return "[" + address + "]"
	}
	return address
}

// requestURL starts a pod on node that requests the URL, and waits until the pod has succeeded.
func (p *probeRun) requestURL(ctx context.Context, name, node, url string) error {
	if err := p.apply(ctx, p.newPod(name, node, append(slices.Clone(p.probe.Get), url))); err != nil {
		return keepLastLine(err)
	}
	_, err := p.awaitPod(ctx, name, func(pod gjson.Result) bool { return pod.Get("status.phase").String() == "Succeeded" })
	return err
}

// explainPod returns an error with the reason why a pod did not reach its desired state: the last line of
// the pod's log. If the log is empty, it is the pod's phase and the reason why a container waits. If the
// pod has not been read, it is the last line of err.
func (p *probeRun) explainPod(ctx context.Context, name string, pod gjson.Result, err error) error {
	if logs, logErr := p.runKubectl(ctx, "", "-n", p.namespace, "logs", name, "--tail=1"); logErr == nil && len(logs) > 0 {
		return errors.New(firstLine(string(logs)))
	}
	if !pod.Exists() {
		return keepLastLine(err)
	}
	return fmt.Errorf("the pod is %s%s", pod.Get("status.phase").String(), waitingReason(pod))
}

// deleteNamespace deletes the namespace of the check, with all objects in it. It works after ctx has ended,
// too.
func (p *probeRun) deleteNamespace(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandTimeout*2)
	defer cancel()
	// The error is ignored, because a later check deletes the namespace; see removeStaleProbes.
	_, _ = p.runKubectl(ctx, "", "delete", "namespace", p.namespace, "--ignore-not-found", "--timeout="+commandTimeout.String())
}

// object is a Kubernetes object, or a part of one, that is encoded as JSON.
type object = map[string]any

// probeObjects returns the namespace, the server pod on the node server, and the Service of that pod.
func (p *probeRun) probeObjects(server string) object {
	pod := p.newPod("server", server, p.probe.Serve)
	pod["spec"].(object)["restartPolicy"] = "Always"
	return object{"apiVersion": "v1", "kind": "List", "items": []object{
		{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": p.namespace, "labels": object{probeLabel: ""}}},
		{"apiVersion": "v1", "kind": "Service", "metadata": object{"name": "server", "namespace": p.namespace},
			"spec": object{"selector": object{"probe": "server"}, "ports": []object{{"port": 8080}}}},
		pod,
	}}
}

// newPod returns a pod that is bound to its node without the scheduler. The scheduler would not use a
// tainted control plane, which may be the only node.
func (p *probeRun) newPod(name, node string, command []string) object {
	return object{"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"name": name, "namespace": p.namespace, "labels": object{"probe": name}},
		"spec": object{
			"nodeName": node, "restartPolicy": "OnFailure", "terminationGracePeriodSeconds": 0,
			"tolerations": []object{{"operator": "Exists"}},
			"containers":  []object{{"name": "probe", "image": p.probe.Image, "imagePullPolicy": "IfNotPresent", "command": command}},
		}}
}
