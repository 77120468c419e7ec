package kubernetes

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/deploy/engine"
	kubernetesengine "github.com/nixbench/nixbench/deploy/engine/kubernetes"
)

// Labels of the objects of the player.
const (
	benchLabel = "nixbench.bench"
	jobLabel   = "nixbench.bench/job" // the id of the job in the workload
)

// objects makes the Kubernetes objects of the player.
type objects struct {
	Options
	hollow bool // pods run on hollow nodes only
}

type object map[string]any

// firstPod returns a pod by which the player sees that its watch has begun. The pod is never placed, because no scheduler has the
// name in its schedulerName.
func (o objects) firstPod() ([]byte, error) {
	return json.Marshal(object{"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"name": firstPodName, "namespace": namespace, "labels": object{benchLabel: "1"}},
		"spec": object{"schedulerName": "nixbench-none", "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
			"containers": []object{{"name": "none", "image": o.Image}}}})
}

const firstPodName = "nixbench-bench-watch"

// largestArray is the largest number of jobs of the workload that are one Indexed Job.
const largestArray = 1000

// arrays divides jobs into those that are one Kubernetes Job each. Its name is the id of the first job.
func (o objects) arrays(jobs []workload.Job) [][]workload.Job {
	return player.Arrays(jobs, func(first workload.Job) int {
		if o.Arrays && first.Tasks == 1 {
			return largestArray
		}
		return 1
	})
}

func (o objects) jobList(jobs []workload.Job) ([]byte, error) {
	var items []object
	for _, array := range o.arrays(jobs) {
		if group := o.podGroup(array[0]); group != nil {
			items = append(items, group)
		}
		items = append(items, o.job(array))
	}
	return json.Marshal(object{"apiVersion": "v1", "kind": "List", "items": items})
}

// stamped reports whether the tasks print stamps of their first and last instruction. On a hollow node, no task runs.
func (o objects) stamped() bool {
	return !o.hollow && (len(o.Command) == 0 || slices.ContainsFunc(o.Command, func(word string) bool { return strings.Contains(word, "{job}") }))
}

// isGang reports whether the player creates a PodGroup for the tasks of a job.
func (o objects) isGang(j workload.Job) bool { return o.Gangs != "" && j.Gang && j.Tasks > 1 }

func (o objects) podGroup(j workload.Job) object {
	if !o.isGang(j) {
		return nil
	}
	version := "scheduling.x-k8s.io/v1alpha1"
	if o.Gangs == Volcano {
		version = "scheduling.volcano.sh/v1beta1"
	}
	return object{"apiVersion": version, "kind": "PodGroup", "metadata": object{"name": j.ID, "namespace": namespace},
		"spec": object{"minMember": j.Tasks}}
}

// job returns the Kubernetes Job for a job of the workload, or for several jobs with one task each.
func (o objects) job(array []workload.Job) object {
	j := array[0]
	labels := object{benchLabel: "1", jobLabel: j.ID}
	podLabels := object{benchLabel: "1", jobLabel: j.ID}
	annotations := object{}
	if o.isGang(j) && o.Gangs == Volcano {
		annotations["scheduling.k8s.io/group-name"] = j.ID
	} else if o.isGang(j) {
		podLabels["scheduling.x-k8s.io/pod-group"] = j.ID
	}
	requests := object{"cpu": strconv.Itoa(j.CPUs)}
	if j.Memory > 0 {
		requests["memory"] = strconv.Itoa(j.Memory) + "Mi"
	}
	runtime := strconv.FormatFloat(j.Runtime, 'f', -1, 64)
	command := []string{"sh", "-c", player.StampScript(j.ID, "${JOB_COMPLETION_INDEX:-0}", "sleep "+runtime, "")}
	if len(o.Command) > 0 {
		command = nil
	}
	for _, word := range o.Command {
		command = append(command, strings.NewReplacer("{runtime}", runtime, "{job}", j.ID).Replace(word))
	}
	pod := object{
		"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false, "enableServiceLinks": false,
		"containers": []object{{"name": "task", "image": o.Image, "imagePullPolicy": "IfNotPresent", "command": command,
			"resources": object{"requests": requests}}},
	}
	if o.hollow {
		placeOnHollow(pod, annotations, runtime)
	}
	if o.Scheduler != "" {
		pod["schedulerName"] = o.Scheduler
	}
	if j.Nodes > 1 {
		pod["topologySpreadConstraints"] = []object{spread(j)}
	}
	pods := j.Tasks * len(array)
	spec := object{"completions": pods, "parallelism": pods, "backoffLimit": 0,
		"template": object{"metadata": object{"labels": podLabels, "annotations": annotations}, "spec": pod}}
	if j.Limit > 0 {
		pod["activeDeadlineSeconds"] = int(math.Ceil(j.Limit))
	}
	if pods > 1 {
		spec["completionMode"] = "Indexed"
	}
	if len(array) > 1 { // the other jobs continue if one fails
		delete(spec, "backoffLimit")
		spec["backoffLimitPerIndex"] = 0
	}
	return object{"apiVersion": "batch/v1", "kind": "Job", "metadata": object{"name": j.ID, "namespace": namespace, "labels": labels}, "spec": spec}
}

// spread returns the constraint that makes the tasks of a job use at least as many nodes as the job requires. A node without room
// gets no task, so another node may have up to maxSkew tasks more. A node whose taints keep the tasks away, such as a control
// plane, does not count.
func spread(j workload.Job) object {
	perNode := (j.Tasks + j.Nodes - 1) / j.Nodes
	return object{"maxSkew": perNode, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": "Honor",
		"labelSelector": object{"matchLabels": object{jobLabel: j.ID}}}
}

// check returns an error if the player cannot run one of the jobs, such as a job that names a queue.
func (o objects) check(jobs []workload.Job) error {
	for _, j := range jobs {
		if j.Queue != "" {
			return fmt.Errorf("kubernetes: job %s names the queue %s, and the scheduler has no queues", j.ID, j.Queue)
		}
		if j.User != "" {
			return fmt.Errorf("kubernetes: job %s belongs to %s, and a Job has no user; remove user from the job", j.ID, j.User)
		}
	}
	return nil
}

// runtimeAnnotation is the annotation of a pod that says after which time the pod ends on a hollow node (a simulated node).
// modules/kubernetes/hollow.nix reads it.
const runtimeAnnotation = "nixbench.bench/runtime"

func hasHollow(members []engine.Member) bool {
	return slices.ContainsFunc(members, func(m engine.Member) bool {
		var settings struct{ Hollow int }
		return m.ReadSettings(&settings) == nil && settings.Hollow > 0
	})
}

// placeOnHollow lets a pod run on hollow (simulated) nodes only, so that no workload runs on real and hollow nodes at the same time.
func placeOnHollow(pod, annotations object, runtime string) {
	pod["affinity"] = object{"nodeAffinity": object{"requiredDuringSchedulingIgnoredDuringExecution": object{"nodeSelectorTerms": []object{
		{"matchExpressions": []object{{"key": kubernetesengine.HollowLabel, "operator": "Exists"}}}}}}}
	pod["tolerations"] = []object{{"key": kubernetesengine.HollowLabel, "operator": "Exists"}}
	annotations[runtimeAnnotation] = runtime + "s"
}
