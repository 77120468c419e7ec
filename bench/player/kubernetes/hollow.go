package kubernetes

import (
	"github.com/nixbench/nixbench/deploy/engine"
	kubernetesengine "github.com/nixbench/nixbench/deploy/engine/kubernetes"
)

// runtimeAnnotation is the annotation of a pod that says after which time the pod ends on a hollow node (a simulated node).
// modules/kubernetes/hollow.nix reads it.
const runtimeAnnotation = "nixbench.bench/runtime"

func hasHollow(members []engine.Member) bool {
	for _, m := range members {
		var settings struct {
			Hollow int `json:"hollow"`
		}
		if m.ReadSettings(&settings) == nil && settings.Hollow > 0 {
			return true
		}
	}
	return false
}

// placeOnHollow lets a pod run on hollow (simulated) nodes only, so that no workload runs on real and hollow nodes at the same
// time.
func placeOnHollow(pod, annotations object, runtime string) {
	pod["affinity"] = object{"nodeAffinity": object{"requiredDuringSchedulingIgnoredDuringExecution": object{"nodeSelectorTerms": []object{
		{"matchExpressions": []object{{"key": kubernetesengine.HollowLabel, "operator": "Exists"}}}}}}}
	pod["tolerations"] = []object{{"key": kubernetesengine.HollowLabel, "operator": "Exists"}}
	annotations[runtimeAnnotation] = runtime + "s"
}
