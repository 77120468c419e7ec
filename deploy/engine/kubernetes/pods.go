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

// What a drain deletes only if the user allows it.
var (
	barePods  = engine.DrainOption{Flag: "drain-bare-pods", Help: "let a drain delete pods that no controller recreates on another node"}
	localData = engine.DrainOption{Flag: "drain-local-data", Help: "let a drain delete data that pods keep on the node in emptyDir volumes"}
)

// pod is a Pod object, as kubectl prints it.
type pod struct {
	gjson.Result
	orphan bool // the pod belongs to a DaemonSet that does not exist any more
}

// listPods returns the pods that are bound to a node.
func (e *Engine) listPods(ctx context.Context, node string) ([]pod, error) {
	items, err := e.listObjects(ctx, "get", "pods", "--all-namespaces", "--field-selector=spec.nodeName="+node)
	if err != nil {
		return nil, err
	}
	var all []pod
	for _, p := range items {
		all = append(all, pod{Result: p})
	}
	return all, nil
}

// listDaemonSets returns the set of the cluster's DaemonSets, as namespace/name.
func (e *Engine) listDaemonSets(ctx context.Context) (map[string]bool, error) {
	items, err := e.listObjects(ctx, "get", "daemonsets", "--all-namespaces")
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, d := range items {
		all[d.Get("metadata.namespace").String()+"/"+d.Get("metadata.name").String()] = true
	}
	return all, nil
}

// markOrphans sets orphan for each pod whose DaemonSet is not in daemonSets. The caller must list the
// DaemonSets after the pods. Otherwise a new DaemonSet could be missing whose pod is in the list.
func markOrphans(pods []pod, daemonSets map[string]bool) {
	for i, p := range pods {
		owner := p.Get("metadata.ownerReferences.#(controller==true).name").String()
		pods[i].orphan = p.controller() == "DaemonSet" && !daemonSets[p.namespace()+"/"+owner]
	}
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

// describeWait returns why the pod remains on the node. The caller has checked that no disruption budget
// blocks the eviction.
func (p pod) describeWait() string {
	if !p.isTerminating() {
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

// checkPods returns the work that is lost if these pods are evicted. Work that the options allow to delete is
// in Deleted, other work is in Blocked. Pods that are already terminating are left out.
func checkPods(pods []pod, o engine.DrainOptions) engine.DrainCheck {
	var check engine.DrainCheck
	for _, p := range pods {
		if p.isTerminating() || strings.HasPrefix(p.namespace(), probeNamespace) { // pods of deep checks contain no work
			continue
		}
		if p.isBare() {
			check.Add(o, barePods, p.name(), "is a bare pod: no controller recreates it on another node")
		}
		if volumes := p.lostVolumes(); len(volumes) > 0 {
			check.Add(o, localData, p.name(), "has data on the node that the drain deletes: emptyDir "+strings.Join(volumes, ", "))
		}
	}
	return check
}
