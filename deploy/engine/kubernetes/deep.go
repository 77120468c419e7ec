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

// Of a look there may be several at once, each in a namespace of its own, and some that were
// cut short. The label tells whose they are.
const (
	probeLabel = "nixbench.dev/check"
	// probeNamespace begins the names of their namespaces.
	probeNamespace = "nixbench-check-"
	probeMaxAge    = 10 * time.Minute // after which nobody is at work in one any more
)

const (
	podTimeout  = 30 * time.Second // of each of the three pods
	deepTimeout = 2 * time.Minute
)

// schedulableNodes are those that take work, or the control planes where there are no others.
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

// checkPodNetwork serves from one worker and asks from another: the pod itself, and a Service
// in front of it by its name. What it starts is removed again, also what earlier,
// interrupted ones left.
func (e *Engine) checkPodNetwork(ctx context.Context) error {
	s, err := e.settings()
	if err != nil {
		return err
	}
	workers := e.schedulableNodes()
	server, client := workers[0], workers[len(workers)-1]
	if err := e.removeStaleProbes(ctx); err != nil {
		return lastLine(err)
	}
	p := &probeRun{Engine: e, probe: s.Probe, namespace: probeNamespace + strings.ToLower(rand.Text()[:10])}
	defer p.cleanUp(ctx)
	if err := p.apply(ctx, p.objects(server)); err != nil {
		return lastLine(err)
	}
	pod, err := p.awaitPod(ctx, "server", isReady)
	if err != nil {
		return fmt.Errorf("the server on %s: %w", server, err)
	}
	for name, url := range map[string]string{
		"to-pod":     "http://" + bracketIPv6(pod.Get("status.podIP").String()) + ":8080/hostname",
		"to-service": "http://server." + p.namespace + ".svc:8080/hostname",
	} {
		if err := p.request(ctx, name, client, url); err != nil {
			return fmt.Errorf("from %s to %s, %s: %w", client, server, url, err)
		}
	}
	return nil
}

// removeStaleProbes has the namespaces of looks removed that were cut short.
func (e *Engine) removeStaleProbes(ctx context.Context) error {
	out, err := e.kubectl(ctx, "", "get", "namespaces", "-l", probeLabel, "-o", "json")
	if err != nil {
		return err
	}
	for _, n := range gjson.GetBytes(out, "items").Array() {
		if n.Get("metadata.deletionTimestamp").Exists() || time.Since(n.Get("metadata.creationTimestamp").Time()) < probeMaxAge {
			continue
		}
		if _, err := e.kubectl(ctx, "", "delete", "namespace", n.Get("metadata.name").String(), "--ignore-not-found", "--wait=false"); err != nil {
			return err
		}
	}
	return nil
}

// probeRun is where one look does its work.
type probeRun struct {
	*Engine
	probe     probe
	namespace string
}

func (p *probeRun) apply(ctx context.Context, o object) error {
	text, err := json.Marshal(o)
	if err == nil {
		_, err = p.kubectl(ctx, string(text), "apply", "-f", "-")
	}
	return err
}

// awaitPod waits until a pod is as it should be.
func (p *probeRun) awaitPod(ctx context.Context, name string, done func(pod gjson.Result) bool) (gjson.Result, error) {
	limit, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	var pod gjson.Result // as it was last seen
	for {
		out, err := p.kubectl(limit, "", "-n", p.namespace, "get", "pod", name, "-o", "json")
		if err == nil {
			pod = gjson.ParseBytes(out)
			if done(pod) {
				return pod, nil
			}
		}
		select {
		case <-time.After(poll):
		case <-limit.Done():
			return pod, p.explainPod(ctx, name, pod, err)
		}
	}
}

// bracketIPv6 puts an IPv6 address into brackets.
func bracketIPv6(address string) string {
	address = strings.TrimSpace(address)
	if strings.Contains(address, ":") {
		return "[" + address + "]"
	}
	return address
}

func (p *probeRun) request(ctx context.Context, name, node, url string) error {
	if err := p.apply(ctx, p.pod(name, node, append(slices.Clone(p.probe.Get), url))); err != nil {
		return lastLine(err)
	}
	_, err := p.awaitPod(ctx, name, func(pod gjson.Result) bool { return pod.Get("status.phase").String() == "Succeeded" })
	return err
}

// explainPod is what a pod says of itself, instead of that waiting was in vain.
func (p *probeRun) explainPod(ctx context.Context, name string, pod gjson.Result, err error) error {
	if logs, logErr := p.kubectl(ctx, "", "-n", p.namespace, "logs", name, "--tail=1"); logErr == nil && len(logs) > 0 {
		return errors.New(firstLine(string(logs)))
	}
	if !pod.Exists() {
		return lastLine(err)
	}
	return fmt.Errorf("the pod is %s%s", pod.Get("status.phase").String(), waitingReason(pod))
}

// cleanUp also runs where ctx has ended.
func (p *probeRun) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout*2)
	defer cancel()
	// One that fails is for the next look's sweep.
	_, _ = p.kubectl(ctx, "", "delete", "namespace", p.namespace, "--ignore-not-found", "--timeout="+askTimeout.String())
}

type object = map[string]any

func (p *probeRun) objects(server string) object {
	pod := p.pod("server", server, p.probe.Serve)
	pod["spec"].(object)["restartPolicy"] = "Always"
	return object{"apiVersion": "v1", "kind": "List", "items": []object{
		{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": p.namespace, "labels": object{probeLabel: ""}}},
		{"apiVersion": "v1", "kind": "Service", "metadata": object{"name": "server", "namespace": p.namespace},
			"spec": object{"selector": object{"probe": "server"}, "ports": []object{{"port": 8080}}}},
		pod,
	}}
}

// pod is bound to its node directly: scheduling is not what is checked, and a tainted
// control plane may be all there is.
func (p *probeRun) pod(name, node string, command []string) object {
	return object{"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"name": name, "namespace": p.namespace, "labels": object{"probe": name}},
		"spec": object{
			"nodeName": node, "restartPolicy": "OnFailure", "terminationGracePeriodSeconds": 0,
			"tolerations": []object{{"operator": "Exists"}},
			"containers":  []object{{"name": "probe", "image": p.probe.Image, "imagePullPolicy": "IfNotPresent", "command": command}},
		}}
}
