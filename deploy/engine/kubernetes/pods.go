package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/deploy/engine"
)

// Flags of the commands that drain.
const (
	barePodsFlag  = "--drain-bare-pods"
	localDataFlag = "--drain-local-data"
)

// pod is one as kubectl prints it.
type pod struct {
	gjson.Result
	orphan bool // its DaemonSet does not exist any more
}

// podsOn are the pods that are bound to a node.
func (e *Engine) podsOn(ctx context.Context, node string) ([]pod, error) {
	out, err := e.kubectl(ctx, "", "get", "pods", "--all-namespaces", "--field-selector=spec.nodeName="+node, "-o", "json")
	if err != nil {
		return nil, err
	}
	if !gjson.ValidBytes(out) {
		return nil, errors.New("kubectl get pods printed no JSON")
	}
	var all []pod
	for _, p := range gjson.GetBytes(out, "items").Array() {
		all = append(all, pod{Result: p})
	}
	return all, nil
}

// daemonSets are the cluster's DaemonSets, as namespace/name.
func (e *Engine) daemonSets(ctx context.Context) (map[string]bool, error) {
	out, err := e.kubectl(ctx, "", "get", "daemonsets", "--all-namespaces", "-o", "json")
	if err != nil {
		return nil, err
	}
	if !gjson.ValidBytes(out) {
		return nil, errors.New("kubectl get daemonsets printed no JSON")
	}
	all := map[string]bool{}
	for _, d := range gjson.GetBytes(out, "items").Array() {
		all[d.Get("metadata.namespace").String()+"/"+d.Get("metadata.name").String()] = true
	}
	return all, nil
}

// markOrphans marks the pods whose DaemonSet is not among these. The DaemonSets are listed after the
// pods: those that are created in between have no pod here.
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

// finished pods have nothing to lose.
func (p pod) finished() bool {
	phase := p.Get("status.phase").String()
	return phase == "Succeeded" || phase == "Failed"
}

func (p pod) terminates() bool { return p.Get("metadata.deletionTimestamp").Exists() }

// evicted tells whether a drain moves the pod. The kubelet's own ones stay, and so do those of
// DaemonSets, which would come back at once; without its DaemonSet, a pod does not.
func (p pod) evicted() bool {
	return p.annotation("kubernetes.io/config.mirror") == "" && (p.controller() != "DaemonSet" || p.orphan || p.finished())
}

// isBare tells whether kubectl wants --force for it.
func (p pod) isBare() bool { return p.evicted() && !p.finished() && (p.controller() == "" || p.orphan) }

// hasEmptyDir tells whether kubectl wants --delete-emptydir-data for it.
func (p pod) hasEmptyDir() bool {
	return p.evicted() && !p.finished() && p.Get("spec.volumes.#(emptyDir)").Exists()
}

// localData are the pod's volumes whose data are lost with it. There is none of that in memory, in the
// cluster's own add-ons, which keep no more than caches there, and in what its owner has declared to be
// safe to evict, by the annotations that the cluster autoscaler reads.
func (p pod) localData() []string {
	system := strings.HasPrefix(p.Get("spec.priorityClassName").String(), "system-")
	const safe = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	if !p.evicted() || p.finished() || system || p.annotation(safe) == "true" {
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

// waits is why the pod is still there, if no budget holds it.
func (p pod) waits() string {
	if !p.terminates() {
		return "is not evicted yet"
	}
	// The API notes when the pod should be gone by.
	since := p.Get("metadata.deletionTimestamp").Time().Add(-time.Duration(p.Get("metadata.deletionGracePeriodSeconds").Int()) * time.Second)
	text := fmt.Sprintf("terminates since %v", max(time.Since(since), 0).Round(time.Second))
	if finalizers := p.Get("metadata.finalizers").Array(); len(finalizers) > 0 {
		text += " and has the finalizer " + finalizers[0].String()
	}
	return text
}

// checkPods tells what is lost with these pods, and what of it the options allow. Pods that
// terminate are lost already.
func checkPods(pods []pod, o engine.DrainOptions) engine.DrainCheck {
	var check engine.DrainCheck
	add := func(p pod, allowed bool, reason, flag string) {
		item := engine.DrainItem{Work: p.name(), Reason: reason, Option: flag}
		if allowed {
			check.Deleted = append(check.Deleted, item)
		} else {
			check.Blocked = append(check.Blocked, item)
		}
	}
	for _, p := range pods {
		if p.terminates() || strings.HasPrefix(p.namespace(), probeNamespace) { // left by a check that was cut short
			continue
		}
		if p.isBare() {
			add(p, o.BarePods, "is a bare pod: nothing creates it again elsewhere", barePodsFlag)
		}
		if volumes := p.localData(); len(volumes) > 0 {
			add(p, o.LocalData, "keeps data on the node that is deleted with it: emptyDir "+strings.Join(volumes, ", "), localDataFlag)
		}
	}
	return check
}
