// Package trial computes the metrics of a trial from its events.
package trial

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
)

// Result is what a trial has measured.
type Result struct {
	Jobs     int `json:"jobs"`
	Tasks    int `json:"tasks"`
	Nodes    int `json:"nodes,omitempty"`  // worker nodes
	Hollow   int `json:"hollow,omitempty"` // number of hollow worker nodes: one machine stands for several hollow nodes
	CPUs     int `json:"cpus,omitempty"`   // processors of all worker nodes; 0: unknown
	Finished int `json:"finished"`         // number of jobs that have ended without an error
	Failed   int `json:"failed"`
	// Unstamped is the number of finished jobs of which a task has not reported its first and its last instruction. If it is not 0, the
	// metrics that need these times are absent: without some of the jobs, they would be wrong.
	Unstamped int                `json:"unstamped,omitempty"`
	Complete  bool               `json:"complete"` // all jobs finished within the time limit
	Began     time.Time          `json:"began"`
	Ended     time.Time          `json:"ended"`   // the time of the last event
	Metrics   map[string]float64 `json:"metrics"` // by name, see Metrics
}

// Metrics contains the names of all metrics. docs/bench.md explains them. The percentile p90, for example, is the smallest value that at
// least 90 % of the jobs do not exceed. If a job did not reach an event, such as its placement, its time until this event is infinite. A
// percentile that is infinite is absent. If a job has finished, but the scheduler has not reported that it was launched, the job is not
// counted in launch.
var Metrics = []string{
	"throughput", "create_rate", "bind_rate", "makespan", "submit_error_max", "wait_p50", "wait_p90", "wait_p99", "wait_max", "admit_p50", "admit_p99",
	"schedule_p50", "schedule_p90", "schedule_p99", "schedule_max", "launch_p50", "launch_p99", "start_p50", "start_p99", "end_p50", "end_p99",
	"slowdown_p50", "slowdown_p99", "gang_skew_p50", "gang_skew_max", "occupancy", "utilisation",
	"submit_capacity", "scheduler_cpu", "scheduler_memory", "requests", "clock_error",
}

// Unit returns the unit of a metric. It is empty if the metric is a number without a unit, or unknown.
func Unit(metric string) string {
	name, _, _ := strings.Cut(metric, "_")
	switch {
	case metric == "throughput":
		return "jobs/s"
	case metric == "create_rate", metric == "bind_rate", metric == "submit_capacity":
		return "1/s"
	case metric == "scheduler_memory":
		return "bytes"
	case slices.Contains([]string{"slowdown", "occupancy", "utilisation", "requests"}, name) || !slices.Contains(Metrics, metric):
		return ""
	}
	return "s"
}

const (
	MinJobsP99 = 100 // minimum number of jobs for a 99th percentile: with fewer, it would be the maximum
	minRun     = 10  // seconds: in the bounded slowdown, a shorter job counts as if it had run for this time
	minEvents  = 10  // minimum number of events from which a rate is computed
)

// never is the duration until an event that did not happen.
var never = math.Inf(1)

// Measure computes the metrics of a trial from its events, which may have any order. Submission times of jobs are relative to began.
// ended is the time at which the player stopped, at the latest the time limit. nodes is the number of worker nodes. cpus is the number of
// their processors, or 0 if it is unknown. Events of jobs that are not in jobs are ignored. If an event happened several times, the first
// counts.
func Measure(jobs []workload.Job, began, ended time.Time, events []player.Event, nodes, cpus int) Result {
	r := Result{
		Jobs: len(jobs), Tasks: workload.Tasks(jobs), Nodes: nodes, CPUs: cpus,
		Began: began, Metrics: map[string]float64{},
	}
	var known []history
	known, r.Ended = collect(jobs, began, events)
	var created, bound []float64
	first, last, work, occupied := never, -never, 0.0, 0.0
	for i, j := range jobs {
		h := known[i]
		switch {
		case h.finished():
			r.Finished++
			last = max(last, h.end())
			cpus := float64(j.Tasks * max(j.CPUs, 1))
			work += cpus * j.Runtime
			occupied += cpus * (h.end() - h.last(player.Bound))
		case h.failed():
			r.Failed++
		}
		first = min(first, j.Submit)
		created = append(created, h.all(player.Created)...)
		bound = append(bound, h.all(player.Bound)...)
	}
	r.Complete = r.Finished == r.Jobs && r.Jobs > 0
	stop := last
	if !r.Complete {
		stop = max(last, ended.Sub(began).Seconds()) // until the time limit: otherwise, a trial would seem faster if its slowest jobs did not finish
	}
	if stop > first {
		r.set("throughput", float64(r.Finished)/(stop-first))
	}
	if r.Complete {
		r.set("makespan", last-first)
		if cpus > 0 && last > first {
			r.set("utilisation", work/(float64(cpus)*(last-first)))
			r.set("occupancy", occupied/(float64(cpus)*(last-first)))
		}
	}
	r.set("create_rate", middleRate(created))
	r.set("bind_rate", middleRate(bound))
	var durations map[string][]float64
	durations, r.Unstamped = listDurations(jobs, known)
	for _, l := range latencies {
		if l.stamped && r.Unstamped > 0 {
			continue
		}
		values := slices.Sorted(slices.Values(durations[l.name]))
		for _, p := range l.percentiles {
			if len(values) > 0 && (p != 99 || r.Jobs >= MinJobsP99) {
				r.set(l.name+shareName[p], values[rank(len(values), p)])
			}
		}
	}
	return r
}

// latencies are the durations of jobs whose percentiles are metrics. Those that are stamped need the stamps of jobs: the times of their
// first and last instruction.
var latencies = []struct {
	name        string
	stamped     bool
	percentiles []int
}{
	{"submit_error", false, []int{100}}, {"admit", false, []int{50, 99}},
	{"schedule", false, []int{50, 90, 99, 100}}, {"launch", false, []int{50, 99}},
	{"wait", true, []int{50, 90, 99, 100}}, {"start", true, []int{50, 99}}, {"end", true, []int{50, 99}}, {"slowdown", true, []int{50, 99}},
	{"gang_skew", true, []int{50, 100}},
}

// IsStamped reports whether a metric needs the stamps of jobs.
func IsStamped(metric string) bool {
	for _, l := range latencies {
		if l.stamped && strings.HasPrefix(metric, l.name+"_") {
			return true
		}
	}
	return false
}

func (r Result) set(name string, value float64) {
	if !math.IsNaN(value) && !math.IsInf(value, 0) {
		r.Metrics[name] = value
	}
}

// listDurations returns the latencies of jobs by name, in seconds, and Result.Unstamped. known contains the history of each job, in the same
// order. A job that did not reach the event at the end of a latency has the value never; submit_error, launch and gang_skew have no value
// for jobs for which it is unknown.
func listDurations(jobs []workload.Job, known []history) (d map[string][]float64, unstamped int) {
	d = map[string][]float64{}
	add := func(name string, value float64) { d[name] = append(d[name], value) }
	ends := map[string]float64{}
	for i, j := range jobs {
		ends[j.ID] = known[i].end()
	}
	for i, j := range jobs {
		h := known[i]
		intended, bound, begin, last := intendedSubmission(j, ends), h.last(player.Bound), h.last(player.Start), h.last(player.Last) // begin: of the task that started last
		if t := h.first(player.Submit); t < never && intended < never {
			add("submit_error", t-intended)
		}
		waited, slow := between(intended, begin), never
		add("wait", waited)
		exists := max(h.first(player.Created), intended) // from the intended submission on, because the job may be created before the jobs for which it waits have ended
		add("admit", between(exists, h.last(player.Admitted)))
		add("schedule", between(exists, bound))
		if launched := h.last(player.Launched); launched < never || !h.finished() { // a scheduler need not report it
			add("launch", between(bound, launched))
		}
		add("start", between(bound, begin))
		switch ran := between(begin, last); {
		case !h.finished():
		case ran == never:
			unstamped++
		case waited < never: // a job counts with at least minRun: otherwise very short jobs would dominate
			slow = max((waited+ran)/max(ran, minRun), 1)
		}
		add("end", between(last, h.end()))
		add("slowdown", slow)
		if j.Gang && j.Tasks > 1 {
			add("gang_skew", h.skew())
		}
	}
	return d, unstamped
}

// shareName maps a percentile to the end of the name of its metric, such as _p50 in wait_p50.
var shareName = map[int]string{50: "_p50", 90: "_p90", 99: "_p99", 100: "_max"}

// between returns the seconds from one event to another, or never if one of the two did not happen. If the clock of the scheduler
// is coarse, the result can be negative.
func between(from, to float64) float64 {
	if from == never || to == never {
		return never
	}
	return to - from
}

// rank returns the index of the smallest of n sorted values that at least p percent of the values do not exceed.
func rank(n, p int) int { return max((n*p+99)/100-1, 0) }

// middleRate returns the number of events per second between the 10th and the 90th percentile of the events' times.
func middleRate(times []float64) float64 {
	if len(times) < minEvents {
		return math.NaN()
	}
	slices.Sort(times)
	from, to := rank(len(times), 10), rank(len(times), 90)
	return float64(to-from) / (times[to] - times[from]) // if all events happened at once, the rate is infinite, and then absent from the result
}

// collect returns the history of each job, and the time of the last event, or began.
func collect(jobs []workload.Job, began time.Time, events []player.Event) (out []history, ended time.Time) {
	ended = began
	index := make(map[string]int, len(jobs))
	for i, j := range jobs {
		out, index[j.ID] = append(out, history{j.Tasks, map[string]map[int]float64{}}), i
	}
	for _, e := range events {
		i, known := index[e.Job]
		if !known || e.Task < 0 || e.Task > out[i].tasks || e.Time.IsZero() {
			continue
		}
		if e.Time.After(ended) {
			ended = e.Time
		}
		out[i].add(e.Kind, e.Task, e.Time.Sub(began).Seconds())
	}
	return out, ended
}

// history contains, for a job and for each task of the job, the time of the first event of each kind, in seconds after the start of the
// trial.
type history struct {
	tasks int
	at    map[string]map[int]float64 // by kind and task; the task 0 is the whole job
}

// add adds the time of an event of the job (task 0) or of a task. Of several events of the same kind, the earliest time is kept.
func (h *history) add(kind string, task int, at float64) {
	if h.at[kind] == nil {
		h.at[kind] = map[int]float64{}
	}
	if old, have := h.at[kind][task]; !have || at < old {
		h.at[kind][task] = at
	}
}

// first returns the time of the job's event of this kind. If the job has no such event, it returns the time of the first such event of a
// task.
func (h history) first(kind string) float64 {
	if t, have := h.at[kind][0]; have {
		return t
	}
	return slices.Min(append(h.all(kind), never))
}

// last returns the time of the job's event of this kind. If the job has no such event, it returns the time of the last such event of
// its tasks, provided that each task has one.
func (h history) last(kind string) float64 {
	if t, have := h.at[kind][0]; have {
		return t
	}
	if len(h.at[kind]) < h.tasks {
		return never
	}
	return slices.Max(append(h.all(kind), -never))
}

// all returns the times of the tasks' events of this kind. If no task has one, it returns the time of the job's event.
func (h history) all(kind string) []float64 {
	var out []float64
	for task, at := range h.at[kind] {
		if task > 0 {
			out = append(out, at)
		}
	}
	if t, have := h.at[kind][0]; have && out == nil {
		out = append(out, t)
	}
	return out
}

// failed reports whether the job has ended with an error. If the job itself has no event for its end, a failed task makes it failed.
func (h history) failed() bool {
	_, failed := h.at[player.Failed][0]
	_, finished := h.at[player.Finish][0]
	return failed || !finished && len(h.at[player.Failed]) > 0
}

func (h history) finished() bool { return !h.failed() && h.last(player.Finish) < never }

// skew returns the time from the start of the job's first task to the start of its last task.
func (h history) skew() float64 {
	starts := h.all(player.Start)
	if len(starts) < h.tasks {
		return never
	}
	return slices.Max(starts) - slices.Min(starts)
}

// intendedSubmission returns the time at which a job is to be submitted: the time in the workload, or the think time after the end of the
// last job in After, whichever is later. ends contains the end times of all jobs.
func intendedSubmission(j workload.Job, ends map[string]float64) float64 {
	at := j.Submit
	for _, a := range j.After {
		at = max(at, ends[a]+j.Think)
	}
	return at
}

// end returns the time at which the job ended, with or without an error.
func (h history) end() float64 {
	switch {
	case h.finished():
		return h.last(player.Finish)
	case h.failed():
		return h.first(player.Failed)
	}
	return never
}

// nearLimit is a relative distance between a measured rate and a limit of the scheduler. If the distance is smaller, the limit determines
// the rate.
const nearLimit = 0.03

// NearLimit reports whether the measured rate that a limit concerns is so near to the limit that the limit determines it. Limits of
// submissions and of finished jobs concern the rate of jobs. Limits of creations concern the rate of creations. All other limits concern
// the rate of placements.
func NearLimit(l player.Limit, metrics map[string]float64) bool {
	metric := "bind_rate"
	switch l.Kind {
	case player.Created:
		metric = "create_rate"
	case player.Submit, player.Finish:
		metric = "throughput"
	}
	rate, ok := metrics[metric]
	return ok && l.Rate > 0 && math.Abs(rate/l.Rate-1) <= nearLimit
}
