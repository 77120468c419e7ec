package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/deploy/engine"
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
	nodes, _ := SplitHollow(items)
	return nodes, nil
}

// SplitHollow returns the Node objects that are not hollow, by name, and the number of hollow nodes that are Ready, by the name of the
// machine that simulates them.
func SplitHollow(all []gjson.Result) (nodes map[string]gjson.Result, readyHollow map[string]int) {
	nodes, readyHollow = map[string]gjson.Result{}, map[string]int{}
	for _, n := range all {
		switch machine := n.Get("metadata.labels." + gjson.Escape(HollowLabel)).String(); {
		case machine == "":
			nodes[NodeName(n)] = n
		case IsReady(n):
			readyHollow[machine]++
		}
	}
	return nodes, readyHollow
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

type ObjectCheck struct {
	Resource  string `json:"resource"`  // kind and name, such as deployment.apps/gang
	Namespace string `json:"namespace"` // empty for kinds without namespaces
	Condition string `json:"condition"` // the condition that must be true; if it is empty, the object must exist
}

// String returns what the check requires, such as "deployment.apps/gang is Available".
func (o ObjectCheck) String() string {
	if o.Condition == "" {
		return o.Resource + " exists"
	}
	return o.Resource + " is " + o.Condition
}

func (c *Client) CheckObject(ctx context.Context, o ObjectCheck) error {
	args := []string{"get", o.Resource}
	if o.Namespace != "" {
		args = append(args, "-n", o.Namespace)
	}
	object, err := c.Get(ctx, args...)
	switch {
	case err != nil && strings.Contains(err.Error(), "(NotFound)"):
		return errors.New("it does not exist")
	case err != nil:
		return engine.LastLine(err)
	case o.Condition == "":
		return nil
	}
	return checkCondition(object, o.Condition)
}

// checkCondition returns nil if the condition is true in the status of an object, and the status is of
// the latest generation of the object.
func checkCondition(o gjson.Result, condition string) error {
	if seen := o.Get("status.observedGeneration"); seen.Exists() && seen.Int() < o.Get("metadata.generation").Int() {
		return errors.New("its latest change is not in its status yet")
	}
	c := o.Get(`status.conditions.#(type=="` + condition + `")`)
	text, _, _ := strings.Cut(strings.TrimSpace(c.Get("message").String()), "\n")
	switch status := c.Get("status").String(); {
	case !c.Exists():
		return fmt.Errorf("its status has no condition %s", condition)
	case status == "True":
		return nil
	default:
		return errors.New(strings.TrimSuffix(condition+" is "+status+": "+text, ": "))
	}
}
