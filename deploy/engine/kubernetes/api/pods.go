package api

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
	orphan bool        // the pod belongs to a DaemonSet that does not exist any more
	block  budgetBlock // what blocks its eviction
}

// readPods returns the pods that are bound to each of the nodes. It lists the DaemonSets after the pods: otherwise the list of
// DaemonSets could lack a new DaemonSet whose pod is in the list of pods. With withoutBudgets, it does not read which budgets
// block evictions.
func (d Drainer) readPods(ctx context.Context, nodes []string, withoutBudgets bool) (map[string][]pod, error) {
	pods := map[string][]gjson.Result{}
	for _, node := range nodes {
		items, err := d.client.List(ctx, "get", "pods", "--all-namespaces", "--field-selector=spec.nodeName="+node)
		if err != nil {
			return nil, err
		}
		pods[node] = items
	}
	if len(nodes) == 0 {
		return nil, nil
	}
	sets, err := d.client.List(ctx, "get", "daemonsets", "--all-namespaces")
	if err != nil {
		return nil, err
	}
	daemonSets := map[string]bool{} // as namespace/name
	for _, s := range sets {
		daemonSets[pod{Result: s}.name()] = true
	}
	var budgets []gjson.Result
	if !withoutBudgets {
		if budgets, err = d.client.List(ctx, "get", "poddisruptionbudgets", "--all-namespaces"); err != nil {
			return nil, err
		}
	}
	all := map[string][]pod{}
	for node, items := range pods {
		for _, item := range items {
			p := pod{Result: item}
			p.orphan = p.controller() == "DaemonSet" && !daemonSets[p.namespace()+"/"+p.Get("metadata.ownerReferences.#(controller==true).name").String()]
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

// isEvictable reports whether a drain evicts the pod. A drain does not evict static pods of the kubelet and
// pods of DaemonSets, because they would be recreated on the same node at once. It evicts orphans, because
// they are not recreated.
func (p pod) isEvictable() bool {
	return p.annotation("kubernetes.io/config.mirror") == "" && (p.controller() != "DaemonSet" || p.orphan || p.isFinished())
}

// isBare reports whether no controller recreates the pod. kubectl drain requires --force for such a pod.
func (p pod) isBare() bool {
	return p.isEvictable() && !p.isFinished() && (p.controller() == "" || p.orphan)
}

// hasEmptyDir reports whether kubectl drain requires --delete-emptydir-data for the pod.
func (p pod) hasEmptyDir() bool {
	return p.isEvictable() && !p.isFinished() && p.Get("spec.volumes.#(emptyDir)").Exists()
}

// lostVolumes returns the names of the emptyDir volumes of the pod whose data a drain deletes. It leaves out
// volumes in memory, volumes of cluster add-ons, because they contain only caches, and volumes that an
// annotation for the cluster autoscaler declares safe to evict.
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
