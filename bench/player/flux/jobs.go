package flux

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
)

// request is a line of the file with jobs that program.py reads.
type request struct {
	Job    string   `json:"job"`
	Submit float64  `json:"submit"`
	After  []string `json:"after,omitempty"`
	Think  float64  `json:"think"`
	Spec   object   `json:"spec"`
}

type object map[string]any

func encodeJobs(jobs []workload.Job) []byte {
	var b bytes.Buffer
	for _, j := range jobs {
		line, _ := json.Marshal(request{j.ID, j.Submit, j.After, j.Think, jobspec(j)}) // cannot fail: the times are finite
		b.Write(append(line, '\n'))
	}
	return b.Bytes()
}

// checkJobs returns an error if Flux cannot run a job as the workload describes it.
func checkJobs(jobs []workload.Job) error {
	for _, j := range jobs {
		if j.Memory > 0 {
			return fmt.Errorf("flux: job %s requests memory, and Flux allocates cores and nodes only; remove memory from the job", j.ID)
		}
		if j.User != "" {
			return fmt.Errorf("flux: job %s belongs to %s, and nixbench submits jobs as the owner of the instance only; remove user from the job", j.ID, j.User)
		}
	}
	return nil
}

// jobspec returns a job as a jobspec of version 1 (RFC 25 of Flux), as `flux submit` makes it from -N, -n and -c. If the tasks
// cannot be divided equally among the nodes, each node gets the same number of slots, and some slots remain empty.
func jobspec(j workload.Job) object {
	resource := object{"type": "slot", "label": "task", "count": (j.Tasks + j.Nodes - 1) / j.Nodes,
		"with": []object{{"type": "core", "count": j.CPUs}}}
	if j.Tasks > 1 {
		resource = object{"type": "node", "count": j.Nodes, "with": []object{resource}}
	}
	count := object{"per_slot": 1}
	if j.Tasks%j.Nodes != 0 {
		count = object{"total": j.Tasks}
	}
	command := []string{"sh", "-c", player.StampScript(j.ID, "${FLUX_TASK_RANK:-0}", player.SleepCommand(j.Runtime), player.AppendStamps)}
	system := object{"duration": j.Limit, "cwd": "/", "job": object{"name": jobName}} // the duration 0 is no limit
	if j.Queue != "" {
		system["queue"] = j.Queue
	}
	return object{
		"version":    1,
		"resources":  []object{resource},
		"tasks":      []object{{"command": command, "slot": "task", "count": count}},
		"attributes": object{"system": system},
	}
}
