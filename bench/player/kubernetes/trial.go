package kubernetes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
)

// trial is the state of the jobs during one call of Play.
type trial struct {
	jobs        map[string]*job
	arrays      map[string][]workload.Job // by the name of a Kubernetes Job that stands for several jobs
	limit       int                       // number of jobs that one command creates
	submissions player.Submissions
	queue       *player.Queue
	ended       map[string]bool
	events      []player.Event // events of pods, with times of the clock of the watch's node
	refused     []player.Event // with times of this machine's clock
	watching    bool           // the watch has begun and has not ended
	breaks      int            // how often the watch has ended
	delay       time.Duration  // the longest time from the creation of a pod until the watch received it, without the fraction of a second
}

type job struct {
	workload.Job
	started time.Time               // when the kubectl command that creates the job started, or zero
	ended   time.Time               // when the kubectl command that creates the job ended, or zero
	seen    map[string]map[int]bool // for each kind of event, the numbers of the tasks that have had it
	last    map[string]time.Time    // for each kind of event, the time at which the last task had it
}

func newTrial(jobs []workload.Job, start time.Time) *trial {
	t := &trial{jobs: map[string]*job{}, ended: map[string]bool{}, arrays: map[string][]workload.Job{}, limit: maxObjects}
	t.queue = player.NewQueue(jobs, start, func(workload.Job) bool { return true })
	for _, w := range jobs {
		t.jobs[w.ID] = &job{Job: w, seen: map[string]map[int]bool{}, last: map[string]time.Time{}}
	}
	return t
}

// take returns the due jobs that the next kubectl command submits, and removes them from the queue.
func (t *trial) take(now time.Time) []workload.Job {
	jobs := t.queue.Due(now)
	jobs = jobs[:min(len(jobs), t.limit)]
	t.queue.Remove(len(jobs))
	return jobs
}

func (t *trial) addSubmission(jobs []workload.Job) {
	now := time.Now()
	for _, j := range jobs {
		t.jobs[j.ID].started = now
	}
	if len(jobs) == 1 {
		t.jobs[jobs[0].ID].ended = now
	}
}

// listEvents returns the events of pods and of submissions. node is the node of the watch, and clock its clock.
func (t *trial) listEvents(node string, clock player.Clocks) []player.Event {
	created, out := map[string]time.Time{}, t.refused
	for _, e := range t.events {
		at := clock.Local(e.Time)
		if first, ok := created[e.Job]; e.Kind == player.Created && (!ok || at.Before(first)) {
			created[e.Job] = at
		}
		e.Clock = node
		out = append(out, e)
	}
	now := time.Now()
	for _, id := range slices.Sorted(maps.Keys(t.jobs)) {
		j := t.jobs[id]
		if j.started.IsZero() {
			continue
		}
		at := cmp.Or(j.ended, now) // the command may not have ended
		if first, ok := created[j.ID]; ok && first.Before(at) {
			at = slices.MaxFunc([]time.Time{first, j.started}, time.Time.Compare) // because of the errors of the clock readings
		}
		out = append(out, player.Event{Time: at, Kind: player.Submit, Job: j.ID})
	}
	return out
}

// addCreation records the end of a kubectl create command, and the event Failed of each job that the command has not
// created. After an error, kubectl continues with the other objects. It prints a line with the name of each created object, and a
// line for each error. addCreation returns an error if kubectl failed for a reason that concerns no single job.
func (t *trial) addCreation(c creation) error {
	if c.err != nil {
		return fmt.Errorf("kubernetes: create jobs: %w", c.err)
	}
	text := strings.TrimSpace(string(c.out))
	lines := strings.Split(text, "\n")
	last := lines[len(lines)-1]
	if !strings.HasPrefix(last, exitStatus) {
		return fmt.Errorf("kubernetes: create jobs: the output of kubectl is incomplete: %.500q", text)
	}
	created := map[string]bool{}
	t.submissions.Add(len(c.arrays), c.at.Sub(t.jobs[c.jobs[0].ID].started)/maxCreates)
	var messages []string
	for _, line := range lines[:len(lines)-1] {
		if job, ok := strings.CutPrefix(line, "job.batch/"); ok {
			created[job] = true
		} else if strings.Contains(line, " ") { // no name of another object
			messages = append(messages, strings.TrimSpace(line))
		}
	}
	anyRefused := false
	for _, array := range c.arrays {
		name, text, named := array[0].ID, "kubectl has not created the Job, and printed no error", false
		for _, text = range messages { // the one that names the Job, or the last one
			if named = strings.Contains(text, `"`+name+`"`); named {
				break
			}
		}
		refused := named || !created[name] && len(created) > 0
		anyRefused = anyRefused || refused
		for _, j := range array {
			if len(c.jobs) > 1 {
				t.jobs[j.ID].ended = c.at
			}
			if refused && !t.ended[j.ID] {
				t.refused = append(t.refused, player.Event{Time: c.at, Kind: player.Failed, Job: j.ID, Text: text})
				t.end(t.jobs[j.ID])
			}
		}
	}
	if !anyRefused && last != exitStatus+"0" {
		return fmt.Errorf("kubernetes: create jobs: kubectl failed with %s: %.500s", last, strings.Join(messages, "\n"))
	}
	return nil
}

// watchDoubts returns why the watch may have received changes much later than they happened: the watch was interrupted or slow.
func (t *trial) watchDoubts() []string {
	var out []string
	if t.breaks > 0 {
		out = append(out, fmt.Sprintf("the API server ended the watch of the pods %d times during the workload, so that times may be late", t.breaks))
	}
	if t.delay > maxDelay {
		out = append(out, fmt.Sprintf("the watch received a pod %v after its creation: the node of the commands has too little processor time, and times are late",
			t.delay.Truncate(100*time.Millisecond)))
	}
	return out
}

// addChanges adds the events that changes of pods cause, and counts the ends of watches.
func (t *trial) addChanges(changes []change) {
	for _, c := range changes {
		if c.ended && t.watching {
			t.breaks++
		}
		t.watching = !c.ended
		if c.job, c.task = t.jobOf(c.job, c.task); t.jobs[c.job] != nil && c.task <= t.jobs[c.job].Tasks {
			t.addChange(t.jobs[c.job], c)
		}
	}
}

// jobOf returns the job of the workload, and the number of its task, for the task of a Kubernetes Job with this name. Tasks count from 1.
func (t *trial) jobOf(name string, task int) (string, int) {
	if array := t.arrays[name]; task <= len(array) {
		return array[task-1].ID, 1
	}
	return name, task
}

// addChange adds the events that follow from the state of a pod, unless the pod's task has had these events. A pod without a
// completion index counts as task 1, because its job has only one task.
func (t *trial) addChange(j *job, c change) {
	if !c.created.IsZero() && !j.seen[player.Created][c.task] {
		t.delay = max(t.delay, c.at.Sub(c.created.Add(time.Second)))
	}
	t.report(j, c, player.Created)
	if c.node != "" {
		t.report(j, c, player.Bound)
	}
	switch {
	case c.phase == "Running" && !c.deleted:
		t.report(j, c, player.Launched)
	case c.phase == "Succeeded":
		t.report(j, c, player.Finish)
	case c.phase == "Failed", c.deleted:
		c.text = cmp.Or(c.text, "pod "+c.pod+" was deleted")
		t.report(j, c, player.Failed)
	}
}

// report adds an event of a task, and, if it follows, the event of the job: the job is created when its first task is created, and fails
// when its first task fails. Any other event of the job comes with that of its last task. A job with one task has only events of the job.
func (t *trial) report(j *job, c change, kind string) {
	if t.ended[j.ID] || j.seen[kind][c.task] || j.seen[player.Finish][c.task] {
		return
	}
	if j.seen[kind] == nil {
		j.seen[kind] = map[int]bool{}
	}
	j.seen[kind][c.task] = true
	if c.at.After(j.last[kind]) {
		j.last[kind] = c.at
	}
	e := player.Event{Time: c.at, Kind: kind, Job: j.ID, Node: c.node}
	if kind == player.Failed {
		e.Text = c.text
	}
	if j.Tasks > 1 {
		e.Task = c.task
		t.events = append(t.events, e)
		e.Task, e.Node, e.Time = 0, "", j.last[kind]
	}
	switch n := len(j.seen[kind]); {
	case kind == player.Created && n > 1, kind != player.Created && kind != player.Failed && n < j.Tasks:
	default:
		t.events = append(t.events, e)
		if kind == player.Finish || kind == player.Failed {
			t.end(j)
		}
	}
}

func (t *trial) end(j *job) {
	t.ended[j.ID] = true
	t.queue.End(j.ID, time.Now())
}
