package kubernetes

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/deploy/engine"
)

// Several runs of nixbench check --deep may take place at the same time, each in its own namespace. A check deletes its namespace
// at the end, unless the check is interrupted.
const (
	probeLabel     = "nixbench.dev/check" // the label of each namespace of a deep check
	probeNamespace = "nixbench-check-"    // the prefix of the name of each such namespace
	probeMaxAge    = 10 * time.Minute     // an older namespace belongs to an interrupted check
)

const podTimeout = 30 * time.Second // time limit of the wait for each of the three test pods

// Probe is the image of the pods of deep checks, with the commands of its web server and its web client.
type Probe struct {
	Image string   `json:"image"`
	Serve []string `json:"serve"` // command in the image that serves HTTP on port 8080
	Get   []string `json:"get"`   // the command that requests a URL, which is appended as the last argument
}

type probeRun struct {
	*Client
	probe     Probe
	namespace string
}

// CheckPodNetwork starts a pod with a web server on one node. Pods on another node then send requests to the address of the
// server pod, and to the name of a Service. At the start, CheckPodNetwork deletes the objects of interrupted checks; at the end,
// it deletes its own objects.
func (c *Client) CheckPodNetwork(ctx context.Context, probe Probe, server, client string) error {
	if err := c.removeStaleProbes(ctx); err != nil {
		return engine.LastLine(err)
	}
	p := &probeRun{Client: c, probe: probe, namespace: probeNamespace + strings.ToLower(rand.Text()[:10])}
	defer p.deleteNamespace(ctx)
	if err := p.apply(ctx, p.probeObjects(server)); err != nil {
		return engine.LastLine(err)
	}
	pod, err := p.awaitPod(ctx, "server", IsReady)
	if err != nil {
		return fmt.Errorf("the server on %s: %w", server, err)
	}
	for name, host := range map[string]string{"to-pod": pod.Get("status.podIP").String(), "to-service": "server." + p.namespace + ".svc"} {
		url := "http://" + net.JoinHostPort(host, "8080") + "/hostname"
		err := p.apply(ctx, p.newPod(name, client, append(slices.Clone(p.probe.Get), url)))
		if err != nil {
			err = engine.LastLine(err)
		} else {
			_, err = p.awaitPod(ctx, name, func(pod gjson.Result) bool { return pod.Get("status.phase").String() == "Succeeded" })
		}
		if err != nil {
			return fmt.Errorf("from %s to %s, %s: %w", client, server, url, err)
		}
	}
	return nil
}

// removeStaleProbes deletes the namespaces of interrupted checks, which are older than probeMaxAge.
func (c *Client) removeStaleProbes(ctx context.Context) error {
	namespaces, err := c.List(ctx, "get", "namespaces", "-l", probeLabel)
	for _, n := range namespaces {
		if n.Get("metadata.deletionTimestamp").Exists() || time.Since(n.Get("metadata.creationTimestamp").Time()) < probeMaxAge {
			continue
		}
		if _, err := c.Kubectl(ctx, "", "delete", "namespace", NodeName(n), "--ignore-not-found", "--wait=false"); err != nil {
			return err
		}
	}
	return err
}

func (p *probeRun) apply(ctx context.Context, o Object) error {
	text, err := json.Marshal(o)
	if err == nil {
		_, err = p.Kubectl(ctx, string(text), "apply", "-f", "-")
	}
	return err
}

// awaitPod reads a pod until done returns true for it, for up to podTimeout, and returns the pod.
func (p *probeRun) awaitPod(ctx context.Context, name string, done func(pod gjson.Result) bool) (gjson.Result, error) {
	limit, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	var pod gjson.Result // the last observed state
	err := engine.Retry(limit, podTimeout, nil, func() error {
		now, err := p.Get(limit, "-n", p.namespace, "get", "pod", name)
		if err == nil {
			if pod = now; !done(pod) {
				err = errors.New("it is not done")
			}
		}
		return err
	})
	if err != nil {
		err = p.explainPod(ctx, name, pod, err)
	}
	return pod, err
}

// explainPod returns an error with the reason why a pod did not reach its desired state: the last line of the pod's log. If the log is
// empty, the reason is the pod's phase and why a container waits. If nixbench could not read the pod, the reason is the last line of err.
func (p *probeRun) explainPod(ctx context.Context, name string, pod gjson.Result, err error) error {
	if logs, logErr := p.Kubectl(ctx, "", "-n", p.namespace, "logs", name, "--tail=1"); logErr == nil && len(logs) > 0 {
		return errors.New(strings.TrimSpace(string(logs)))
	}
	if !pod.Exists() {
		return engine.LastLine(err)
	}
	return fmt.Errorf("the pod is %s%s", pod.Get("status.phase").String(), WaitingReason(pod))
}

// deleteNamespace deletes the namespace of the check, with all objects in it, also if ctx has ended.
func (p *probeRun) deleteNamespace(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*requestTimeout)
	defer cancel()
	// The error is ignored, because a later check deletes the namespace; see removeStaleProbes.
	_, _ = p.Kubectl(ctx, "", "delete", "namespace", p.namespace, "--ignore-not-found", "--timeout="+requestTimeout.String())
}

// probeObjects returns the namespace, the server pod on the node server, and the Service of that pod.
func (p *probeRun) probeObjects(server string) Object {
	pod := p.newPod("server", server, p.probe.Serve)
	pod["spec"].(Object)["restartPolicy"] = "Always"
	return Object{"apiVersion": "v1", "kind": "List", "items": []Object{
		{"apiVersion": "v1", "kind": "Namespace", "metadata": Object{"name": p.namespace, "labels": Object{probeLabel: ""}}},
		{"apiVersion": "v1", "kind": "Service", "metadata": Object{"name": "server", "namespace": p.namespace},
			"spec": Object{"selector": Object{"probe": "server"}, "ports": []Object{{"port": 8080}}}},
		pod,
	}}
}

// newPod returns a pod that is bound to its node without the scheduler. The scheduler would not use a
// tainted control plane, which may be the only node.
func (p *probeRun) newPod(name, node string, command []string) Object {
	return Object{"apiVersion": "v1", "kind": "Pod",
		"metadata": Object{"name": name, "namespace": p.namespace, "labels": Object{"probe": name}},
		"spec": Object{
			"nodeName": node, "restartPolicy": "OnFailure", "terminationGracePeriodSeconds": 0,
			"tolerations": []Object{{"operator": "Exists"}},
			"containers":  []Object{{"name": "probe", "image": p.probe.Image, "imagePullPolicy": "IfNotPresent", "command": command}},
		}}
}
