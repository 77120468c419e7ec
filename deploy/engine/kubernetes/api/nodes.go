package api

import (
	"context"

	"github.com/tidwall/gjson"
)

// Object is a Kubernetes object, or a part of one, that is encoded as JSON.
type Object = map[string]any

// HollowLabel is the label of a hollow node: a Node object without a machine of its own, which another machine simulates. The
// label's value is the name of that machine.
const HollowLabel = "nixbench.dev/hollow"

// Nodes returns the Node objects of the cluster, by name, without hollow nodes.
func (c *Client) Nodes(ctx context.Context) (map[string]gjson.Result, error) {
	items, err := c.List(ctx, "get", "nodes")
	if err != nil {
		return nil, err
	}
	all := map[string]gjson.Result{}
	for _, n := range items {
		if HollowMachine(n) == "" {
			all[NodeName(n)] = n
		}
	}
	return all, nil
}

// HollowMachine returns the name of the machine that simulates a hollow node, or an empty string if the node is not hollow.
func HollowMachine(n gjson.Result) string {
	return n.Get("metadata.labels." + gjson.Escape(HollowLabel)).String()
}

func NodeName(n gjson.Result) string { return n.Get("metadata.name").String() }

// IsReady reports whether the condition Ready of a node or pod is true.
func IsReady(n gjson.Result) bool {
	return n.Get(`status.conditions.#(type=="Ready").status`).String() == "True"
}

// UnreadySystemPods returns the number of pods in kube-system and the pods that are not ready. Pods of
// finished jobs, and pods that are being deleted, count as ready.
func (c *Client) UnreadySystemPods(ctx context.Context) (all int, waiting []gjson.Result, _ error) {
	pods, err := c.List(ctx, "-n", "kube-system", "get", "pods")
	for _, p := range pods {
		if p.Get("status.phase").String() != "Succeeded" && !p.Get("metadata.deletionTimestamp").Exists() && !IsReady(p) {
			waiting = append(waiting, p)
		}
	}
	return len(pods), waiting, err
}

// WaitingReason returns the reason why a container of a pod waits, in parentheses, or an empty string if no
// container waits or the container is only being created.
func WaitingReason(pod gjson.Result) string {
	for _, c := range pod.Get("status.containerStatuses").Array() {
		if r := c.Get("state.waiting.reason").String(); r != "" && r != "ContainerCreating" {
			return " (" + r + ")"
		}
	}
	return ""
}
