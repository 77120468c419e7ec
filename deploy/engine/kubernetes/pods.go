package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/deploy/engine"
)

// The kinds of pods that a drain deletes only if the user allows it with a flag.
var (
	BarePods  = engine.DrainOption{Name: "bare-pods", Help: "pods that no controller recreates on another node"}
	LocalData = engine.DrainOption{Name: "local-data", Help: "data that pods keep on the node in emptyDir volumes"}
)

type pod struct {
	gjson.Result
	block budgetBlock // what blocks its eviction
}

// readPods returns the pods that are bound to each of the nodes. With withoutBudgets, it does not read which budgets block evictions.
func (c *Client) readPods(ctx context.Context, nodes []string, withoutBudgets bool) (map[string][]pod, error) {
	var budgets []gjson.Result
	var err error
	if !withoutBudgets && len(nodes) > 0 {
		if budgets, err = c.List(ctx, "get", "poddisruptionbudgets", "--all-namespaces"); err != nil {
			return nil, err
		}
	}
	all := map[string][]pod{}
	for _, node := range nodes {
		items, err := c.List(ctx, "get", "pods", "--all-namespaces", "--field-selector=spec.nodeName="+node)
		if err != nil {
			return nil, err
		}
		for _, item := range items {
			p := pod{Result: item}
			p.block = findBlock(budgets, p)
			all[node] = append(all[node], p)
		}
	}
	return all, nil
}

func (p pod) name() string { return p.namespace() + "/" + p.Get("metadata.name").String() }

func (p pod) namespace() string { return p.Get("metadata.namespace").String() }

func (p pod) annotation(name string) string {
	return p.Get("metadata.annotations." + gjson.Escape(name)).String()
}

func (p pod) controller() string {
	return p.Get("metadata.ownerReferences.#(controller==true).kind").String()
}

// isFinished reports whether all containers of the pod have ended. The eviction of such a pod loses no work.
func (p pod) isFinished() bool {
	phase := p.Get("status.phase").String()
	return phase == "Succeeded" || phase == "Failed"
}

func (p pod) isTerminating() bool { return p.Get("metadata.deletionTimestamp").Exists() }

// isEvictable reports whether a drain evicts the pod. A drain does not evict static pods of the kubelet and pods of DaemonSets, because
// they would be recreated on the same node at once.
func (p pod) isEvictable() bool {
	return p.annotation("kubernetes.io/config.mirror") == "" && (p.controller() != "DaemonSet" || p.isFinished())
}

// isBare reports whether no controller recreates the pod. kubectl drain requires --force for such a pod.
func (p pod) isBare() bool {
	return p.isEvictable() && !p.isFinished() && p.controller() == ""
}

// hasEmptyDir reports whether kubectl drain requires --delete-emptydir-data for the pod.
func (p pod) hasEmptyDir() bool {
	return p.isEvictable() && !p.isFinished() && p.Get("spec.volumes.#(emptyDir)").Exists()
}

// lostVolumes returns the names of the emptyDir volumes of the pod whose data a drain deletes. It leaves out volumes in memory, volumes
// of cluster add-ons, because they contain only caches, and volumes that an annotation for the cluster autoscaler declares safe to evict.
func (p pod) lostVolumes() []string {
	system := strings.HasPrefix(p.Get("spec.priorityClassName").String(), "system-")
	const safe = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	if !p.isEvictable() || p.isFinished() || system || p.annotation(safe) == "true" {
		return nil
	}
	declared := strings.Split(strings.ReplaceAll(p.annotation(safe+"-local-volumes"), " ", ""), ",")
	var out []string
	for _, v := range p.Get("spec.volumes.#(emptyDir)#").Array() {
		name := v.Get("name").String()
		if v.Get("emptyDir.medium").String() != "Memory" && !slices.Contains(declared, name) {
			out = append(out, name)
		}
	}
	return out
}

func (p pod) describeWait() string {
	switch {
	case !p.isTerminating() && p.block.name != "":
		return "waits for PodDisruptionBudget " + p.block.name + ", which " + p.block.text
	case !p.isTerminating():
		return "is not evicted yet"
	}
	// deletionTimestamp is the time of the deletion plus the grace period.
	since := p.Get("metadata.deletionTimestamp").Time().Add(-time.Duration(p.Get("metadata.deletionGracePeriodSeconds").Int()) * time.Second)
	text := fmt.Sprintf("has been terminating for %v", max(time.Since(since), 0).Round(time.Second))
	if finalizers := p.Get("metadata.finalizers").Array(); len(finalizers) > 0 {
		text += " and has the finalizer " + finalizers[0].String()
	}
	return text
}

// checkPods returns the work that is lost if these pods are evicted. Work that the options o allow to delete is in Deleted, and
// other work is in Blocked. Pods that are already terminating are left out. With budgets, pods whose disruption budget never
// allows an eviction are in Blocked, too.
func checkPods(pods []pod, o engine.DrainOptions, budgets bool) engine.DrainCheck {
	var check engine.DrainCheck
	for _, p := range pods {
		if p.isTerminating() || strings.HasPrefix(p.namespace(), probeNamespace) { // pods of deep checks contain no work
			continue
		}
		if p.isBare() {
			check.Add(o, BarePods, p.name(), "is a bare pod: no controller recreates it on another node")
		}
		if volumes := p.lostVolumes(); len(volumes) > 0 {
			check.Add(o, LocalData, p.name(), "has data on the node that the drain deletes: emptyDir "+strings.Join(volumes, ", "))
		}
		if budgets && p.block.permanent && p.isEvictable() {
			check.Blocked = append(check.Blocked, engine.DrainItem{Work: p.name(), Reason: "cannot be evicted: PodDisruptionBudget " + p.block.name + " " + p.block.text,
				Remedy: "change the disruption budget or the number of its pods"})
		}
	}
	return check
}

// budgetBlock describes a PodDisruptionBudget that blocks the eviction of a pod. name is empty if no budget blocks the eviction.
type budgetBlock struct {
	name      string // the budget, as namespace/name
	text      string // why the budget blocks the eviction
	permanent bool   // whether the budget blocks the eviction until somebody changes the budget or the number of pods
}

// findBlock returns the budget that blocks the eviction of a pod, temporarily or permanently.
func findBlock(budgets []gjson.Result, p pod) budgetBlock {
	if phase := p.Get("status.phase").String(); phase != "Running" { // the API server evicts pods that do not run regardless of budgets
		return budgetBlock{}
	}
	var of []gjson.Result
	for _, b := range budgets {
		if b.Get("metadata.namespace").String() == p.namespace() && matchesSelector(b.Get("spec.selector"), p.Get("metadata.labels")) {
			of = append(of, b)
		}
	}
	name := func(b gjson.Result) string { return p.namespace() + "/" + b.Get("metadata.name").String() }
	switch len(of) {
	case 0:
		return budgetBlock{}
	case 1:
	default:
		return budgetBlock{name: name(of[0]), text: "is one of several budgets of this pod, and the API evicts no such pod; another one is " + name(of[1]), permanent: true}
	}
	b := of[0]
	unready := !IsReady(p.Result)
	if b.Get("status.disruptionsAllowed").Int() > 0 || unready && b.Get("spec.unhealthyPodEvictionPolicy").String() == "AlwaysAllow" {
		return budgetBlock{}
	}
	healthy, desired, expected := b.Get("status.currentHealthy").Int(), b.Get("status.desiredHealthy").Int(), b.Get("status.expectedPods").Int()
	if unready && healthy >= desired && desired > 0 {
		return budgetBlock{}
	}
	// Until the controller has observed the last change of the budget, the numbers in the status may be
	// outdated, and the block does not count as permanent.
	fresh := b.Get("status.observedGeneration").Int() >= b.Get("metadata.generation").Int()
	return budgetBlock{
		name: name(b), text: fmt.Sprintf("allows 0 disruptions (%d of %d pods must be healthy, and %d are)", desired, expected, healthy),
		permanent: fresh && expected > 0 && desired >= expected,
	}
}

// matchesSelector reports whether a label selector matches the labels of a pod. An empty selector matches all
// pods; a missing selector matches no pod.
func matchesSelector(selector, labels gjson.Result) bool {
	if !selector.Exists() {
		return false
	}
	get := func(key string) gjson.Result { return labels.Get(gjson.Escape(key)) }
	matches := true
	selector.Get("matchLabels").ForEach(func(key, value gjson.Result) bool {
		is := get(key.String())
		matches = is.Exists() && is.String() == value.String()
		return matches
	})
	for _, e := range selector.Get("matchExpressions").Array() {
		is := get(e.Get("key").String())
		in := is.Exists() && slices.ContainsFunc(e.Get("values").Array(), func(v gjson.Result) bool { return v.String() == is.String() })
		switch strings.ToLower(e.Get("operator").String()) {
		case "in":
			matches = matches && in
		case "notin":
			matches = matches && !in
		case "exists":
			matches = matches && is.Exists()
		case "doesnotexist":
			matches = matches && !is.Exists()
		}
	}
	return matches
}
