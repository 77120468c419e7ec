package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

const namespace = "nixbench-check"

// workers are those that take work, or the control planes where there are no others.
func (e *Engine) workers() []string {
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

// roundTrip serves from one worker and asks from another: the pod itself, and a Service
// in front of it by its name. What it starts is removed again, also what an earlier,
// interrupted one left.
func (e *Engine) roundTrip(ctx context.Context) error {
	s, err := e.settings()
	if err != nil {
		return err
	}
	workers := e.workers()
	server, client := workers[0], workers[len(workers)-1]
	defer e.cleanUp(ctx)
	objects, err := json.Marshal(s.Probe.objects(server))
	if err != nil {
		return err
	}
	if err := e.cleanUp(ctx); err != nil {
		return brief(err)
	}
	if _, err := e.kubectl(ctx, string(objects), "apply", "-f", "-"); err != nil {
		return brief(err)
	}
	if _, err := e.kubectl(ctx, "", "-n", namespace, "wait", "--for=condition=Ready", "pod/server", "--timeout=10s"); err != nil {
		return fmt.Errorf("the server on %s: %w", server, e.podTrouble(ctx, "server", err))
	}
	pod, err := e.kubectl(ctx, "", "-n", namespace, "get", "pod", "server", "-o", "jsonpath={.status.podIP}")
	if err != nil {
		return brief(err)
	}
	for name, url := range map[string]string{
		"to-pod":     "http://" + host(string(pod)) + ":8080/hostname",
		"to-service": "http://server." + namespace + ".svc:8080/hostname",
	} {
		if err := e.ask(ctx, s.Probe, name, client, url); err != nil {
			return fmt.Errorf("from %s to %s, %s: %w", client, server, url, err)
		}
	}
	return nil
}

// host puts an IPv6 address into brackets.
func host(address string) string {
	address = strings.TrimSpace(address)
	if strings.Contains(address, ":") {
		return "[" + address + "]"
	}
	return address
}

func (e *Engine) ask(ctx context.Context, p probe, name, node, url string) error {
	pod, err := json.Marshal(p.pod(name, node, append(slices.Clone(p.Get), url)))
	if err != nil {
		return err
	}
	if _, err := e.kubectl(ctx, string(pod), "apply", "-f", "-"); err != nil {
		return brief(err)
	}
	if _, err := e.kubectl(ctx, "", "-n", namespace, "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/"+name, "--timeout=10s"); err != nil {
		return e.podTrouble(ctx, name, err)
	}
	return nil
}

// podTrouble is what a pod says of itself, instead of that waiting was in vain.
func (e *Engine) podTrouble(ctx context.Context, name string, err error) error {
	if logs, logErr := e.kubectl(ctx, "", "-n", namespace, "logs", name, "--tail=1"); logErr == nil && len(logs) > 0 {
		return errors.New(firstLine(string(logs)))
	}
	if out, getErr := e.kubectl(ctx, "", "-n", namespace, "get", "pod", name, "-o", "json"); getErr == nil {
		pod := gjson.ParseBytes(out)
		return fmt.Errorf("the pod is %s%s", pod.Get("status.phase").String(), reason(pod))
	}
	return brief(err)
}

// cleanUp also runs where ctx has ended.
func (e *Engine) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout*2)
	defer cancel()
	_, err := e.kubectl(ctx, "", "delete", "namespace", namespace, "--ignore-not-found", "--timeout="+askTimeout.String())
	return err
}

type object = map[string]any

func (p probe) objects(server string) object {
	pod := p.pod("server", server, p.Serve)
	pod["spec"].(object)["restartPolicy"] = "Always"
	return object{"apiVersion": "v1", "kind": "List", "items": []object{
		{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": namespace}},
		{"apiVersion": "v1", "kind": "Service", "metadata": object{"name": "server", "namespace": namespace},
			"spec": object{"selector": object{"probe": "server"}, "ports": []object{{"port": 8080}}}},
		pod,
	}}
}

// pod is bound to its node directly: scheduling is not what is checked, and a tainted
// control plane may be all there is.
func (p probe) pod(name, node string, command []string) object {
	return object{"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"name": name, "namespace": namespace, "labels": object{"probe": name}},
		"spec": object{
			"nodeName": node, "restartPolicy": "OnFailure", "terminationGracePeriodSeconds": 0,
			"tolerations": []object{{"operator": "Exists"}},
			"containers":  []object{{"name": "probe", "image": p.Image, "imagePullPolicy": "IfNotPresent", "command": command}},
		}}
}
