package kubernetes

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/nixbench/nixbench/bench/workload"
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

// object is a JSON object.
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

func newList(items []object) object {
	return object{"apiVersion": "v1", "kind": "List", "items": items}
}

// jobList returns the objects of jobs.
func (o objects) jobList(jobs []workload.Job) ([]byte, error) {
	var items []object
	for _, j := range jobs {
		if group := o.podGroup(j); group != nil {
			items = append(items, group)
		}
		items = append(items, o.job(j))
	}
	return json.Marshal(newList(items))
}

// isGang reports whether the player creates a PodGroup for the tasks of a job.
func (o objects) isGang(j workload.Job) bool { return o.Gangs != "" && j.Gang && j.Tasks > 1 }

// podGroup returns the PodGroup of a gang, or nil.
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

// job returns the Kubernetes Job for a job of the workload.
func (o objects) job(j workload.Job) object {
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
	var command []string
	runtime := strconv.FormatFloat(j.Runtime, 'f', -1, 64)
	for _, word := range o.Command {
		command = append(command, strings.ReplaceAll(word, "{runtime}", runtime))
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
	spec := object{"completions": j.Tasks, "parallelism": j.Tasks, "backoffLimit": 0,
		"template": object{"metadata": object{"labels": podLabels, "annotations": annotations}, "spec": pod}}
	if j.Tasks > 1 {
		spec["completionMode"] = "Indexed"
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
	if o.Image == "" || len(o.Command) == 0 {
		return fmt.Errorf("kubernetes: the pods need an image and a command")
	}
	if o.Gangs != "" && o.Gangs != Coscheduling && o.Gangs != Volcano {
		return fmt.Errorf("kubernetes: gangs are %s or %s, and not %s", Coscheduling, Volcano, o.Gangs)
	}
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
