// Package trial computes the metrics of a trial from its events.
package trial

import (
	"math"
	"slices"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
)

// Result is what a trial has measured.
type Result struct {
	Jobs     int                `json:"jobs"`
	Tasks    int                `json:"tasks"`
	Nodes    int                `json:"nodes,omitempty"`  // worker nodes
	Hollow   int                `json:"hollow,omitempty"` // how many of the worker nodes are hollow, which means that one machine stands for several of them
	CPUs     int                `json:"cpus,omitempty"`   // processors of all worker nodes; 0: unknown
	Finished int                `json:"finished"`         // jobs that have ended without an error
	Failed   int                `json:"failed"`
	Complete bool               `json:"complete"` // all jobs finished within the time limit
	Began    time.Time          `json:"began"`
	Ended    time.Time          `json:"ended"`   // the time of the last event
	Metrics  map[string]float64 `json:"metrics"` // by name, see Metrics
}

// Metric describes a metric. Its unit is empty for a ratio without a unit.
type Metric struct {
	Name, Unit, Text string
}

// Metrics contains all metrics. A percentile is the smallest value that at least this share of the jobs does not exceed. A job that did
// not reach an event, such as its placement, has an unlimited time until it; a percentile that is such a time is absent. A job that has
// finished, and whose start was not reported, is not among the values of start and gang_skew.
var Metrics = []Metric{
	{"throughput", "jobs/s", "finished jobs per second, from the first intended submission to the last finish, or to the end of the trial if not all jobs finished"},
	{"create_rate", "1/s", "created tasks per second between the 10th and the 90th percentile of their times; absent with fewer than 10"},
	{"bind_rate", "1/s", "placements per second between the 10th and the 90th percentile of their times; absent with fewer than 10"},
	{"makespan", "s", "from the first intended submission to the last finish; absent if not all jobs finished"},
	{"submit_error_max", "s", "maximum time by which the player submitted a job too late"},
	{"wait_p50", "s", "from the intended submission to the start, or to the placement if the scheduler reports no start; median"},
	{"wait_p90", "s", "the same, 90th percentile"},
	{"wait_p99", "s", "the same, 99th percentile"},
	{"wait_max", "s", "the same, maximum"},
	{"admit_p50", "s", "from the creation of the job, or from its intended submission if that is later, until the scheduler may place it; absent if the scheduler does not report it; median"},
	{"admit_p99", "s", "the same, 99th percentile"},
	{"schedule_p50", "s", "from the creation of the job, or from its intended submission if that is later, to the placement of its last task; median"},
	{"schedule_p90", "s", "the same, 90th percentile"},
	{"schedule_p99", "s", "the same, 99th percentile"},
	{"schedule_max", "s", "the same, maximum"},
	{"start_p50", "s", "from the placement of the last task to the start of the last task; median"},
	{"start_p99", "s", "the same, 99th percentile"},
	{"slowdown_p50", "", "bounded slowdown: (wait + run) / run, where a run counts as at least 10 s, and the slowdown as at least 1; median"},
	{"slowdown_p99", "", "the same, 99th percentile"},
	{"gang_skew_p50", "s", "from the first to the last start of the tasks of a gang; median of the gangs"},
	{"gang_skew_max", "s", "the same, maximum"},
	{"utilisation", "", "processor seconds that the tasks were to use, divided by all processor seconds of the makespan"},
}

// minRun is the number of seconds that a bounded slowdown counts as the run time of shorter jobs.
const minRun = 10

// minEvents is the minimum number of events from which a rate is computed.
const minEvents = 10

// never is the duration until an event that did not happen.
var never = math.Inf(1)

// Measure computes the metrics of a trial from its events, which may have any order. Submission times of jobs count from began, and ended is
// when the player stopped, at the latest at the time limit. nodes is the number of worker nodes, cpus the number of their processors, or 0
// if that is unknown. Events of other jobs are ignored. If an event happened several times, as after a restart of a task, the first one counts.
func Measure(jobs []workload.Job, began, ended time.Time, events []player.Event, nodes, cpus int) Result {
	r := Result{
		Jobs: len(jobs), Tasks: workload.Tasks(jobs), Nodes: nodes, CPUs: cpus,
		Began: began, Ended: began, Metrics: map[string]float64{},
	}
	known := collect(jobs, events, &r)
	var created, bound []float64
	first, last, work := never, -never, 0.0
	for i, j := range jobs {
		h := known[i]
		switch {
		case h.finished():
			r.Finished++
			last = max(last, h.end())
			work += float64(j.Tasks) * float64(max(j.CPUs, 1)) * j.Runtime
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
		}
	}
	r.set("create_rate", middleRate(created))
	r.set("bind_rate", middleRate(bound))
	d := listDurations(jobs, known)
	r.setPercentiles("submit_error", d.late, 100)
	r.setPercentiles("wait", d.wait, 50, 90, 99, 100)
	r.setPercentiles("admit", d.admit, 50, 99)
	r.setPercentiles("schedule", d.schedule, 50, 90, 99, 100)
	r.setPercentiles("start", d.start, 50, 99)
	r.setPercentiles("slowdown", d.slowdown, 50, 99)
	r.setPercentiles("gang_skew", d.skew, 50, 100)
	return r
}

// set sets a metric, unless its value is none.
func (r Result) set(name string, value float64) {
	if !math.IsNaN(value) && !math.IsInf(value, 0) {
		r.Metrics[name] = value
	}
}

// setPercentiles sets the metrics of the percentiles of values.
func (r Result) setPercentiles(name string, values []float64, shares ...int) {
	slices.Sort(values)
	for _, p := range shares {
		r.set(name+shareName[p], percentile(values, p))
	}
}

// durations contains a value of each job, in seconds; it is never if the job did not get so far. late, start and skew leave out
// the jobs that have no such value.
type durations struct{ late, wait, admit, schedule, start, slowdown, skew []float64 }

func listDurations(jobs []workload.Job, known []history) (d durations) {
	ends := map[string]float64{} // when each job has ended
	for i, j := range jobs {
		if end := known[i].end(); end < never {
			ends[j.ID] = end
		}
	}
	for i, j := range jobs {
		h := known[i]
		intended := intendedSubmission(j, ends)
		if t := h.first(player.Submit); t < never && intended < never {
			d.late = append(d.late, t-intended)
		}
		begin := h.begin()
		waited := between(intended, begin)
		d.wait = append(d.wait, waited)
		exists := max(h.first(player.Created), intended) // from the intended submission on, because the job may be created before the jobs for which it waits have ended
		d.admit = append(d.admit, between(exists, h.last(player.Admitted)))
		d.schedule = append(d.schedule, between(exists, h.last(player.Bound)))
		isLost := func(starts float64) bool { return starts == never && h.finished() } // whether the job has started, although the scheduler has not reported when
		if started := between(h.last(player.Bound), h.last(player.Start)); !isLost(started) {
			d.start = append(d.start, started)
		}
		slow := never
		if h.finished() {
			slow = boundedSlowdown(waited, between(begin, h.end()))
		}
		d.slowdown = append(d.slowdown, slow)
		if s := h.skew(); j.Gang && j.Tasks > 1 && !isLost(s) {
			d.skew = append(d.skew, s)
		}
	}
	return d
}

// shareName contains the ends of the names of percentiles.
var shareName = map[int]string{50: "_p50", 90: "_p90", 99: "_p99", 100: "_max"}

// between returns the seconds from one event to another, or never if one of them did not happen. With a coarse clock of the
// scheduler, the difference can be negative.
func between(from, to float64) float64 {
	if from == never || to == never {
		return never
	}
	return to - from
}

// boundedSlowdown returns the slowdown of a job. Without the bound, jobs that run for a moment would dominate.
func boundedSlowdown(wait, run float64) float64 {
	if wait == never || run == never {
		return never
	}
	return max((wait+run)/max(run, minRun), 1)
}

// percentile returns the smallest of the sorted values that at least p percent of them do not exceed.
func percentile(sorted []float64, p int) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[rank(len(sorted), p)]
}

// rank returns the index of a percentile of n sorted values.
func rank(n, p int) int { return max((n*p+99)/100-1, 0) }

// middleRate returns the rate of events between the 10th and the 90th percentile of their times.
func middleRate(times []float64) float64 {
	if len(times) < minEvents {
		return math.NaN()
	}
	slices.Sort(times)
	from, to := rank(len(times), 10), rank(len(times), 90)
	return float64(to-from) / (times[to] - times[from]) // if all events happened at once, the rate is infinite, and then absent from the result
}

// collect returns the history of each job, and sets in r when the last job of the trial ended.
func collect(jobs []workload.Job, events []player.Event, r *Result) []history {
	out := make([]history, len(jobs))
	index := make(map[string]int, len(jobs))
	for i, j := range jobs {
		out[i] = history{tasks: max(j.Tasks, 1)}
		index[j.ID] = i
	}
	for _, e := range events {
		i, known := index[e.Job]
		if !known || e.Task < 0 || e.Task > out[i].tasks || e.Time.IsZero() {
			continue
		}
		if e.Time.After(r.Ended) {
			r.Ended = e.Time
		}
		out[i].add(e.Kind, e.Task, e.Time.Sub(r.Began).Seconds())
	}
	return out
}

// history contains the time of the first event of each kind of a job and of its tasks, in seconds after the start of the trial.
type history struct {
	tasks int
	job   map[string]float64
	task  map[string]map[int]float64 // by kind and task
}

func (h *history) add(kind string, task int, at float64) {
	if task == 0 {
		if h.job == nil {
			h.job = map[string]float64{}
		}
		if old, have := h.job[kind]; !have || at < old {
			h.job[kind] = at
		}
		return
	}
	if h.task == nil {
		h.task = map[string]map[int]float64{}
	}
	if h.task[kind] == nil {
		h.task[kind] = map[int]float64{}
	}
	if old, have := h.task[kind][task]; !have || at < old {
		h.task[kind][task] = at
	}
}

// first returns the time of the job's event of a kind, or if the job has none, of the first of its tasks' events.
func (h history) first(kind string) float64 {
	if t, have := h.job[kind]; have {
		return t
	}
	t := never
	for _, at := range h.task[kind] {
		t = min(t, at)
	}
	return t
}

// last returns the time of the job's event of a kind, or if the job has none, of the last of its tasks' events, if all tasks
// have one.
func (h history) last(kind string) float64 {
	if t, have := h.job[kind]; have {
		return t
	}
	if len(h.task[kind]) < h.tasks {
		return never
	}
	t := -never
	for _, at := range h.task[kind] {
		t = max(t, at)
	}
	return t
}

// all returns the times of the tasks' events of a kind, or of the job's event if no task has one.
func (h history) all(kind string) []float64 {
	var out []float64
	for _, at := range h.task[kind] {
		out = append(out, at)
	}
	if t, have := h.job[kind]; have && out == nil {
		out = append(out, t)
	}
	return out
}

// failed reports whether the job has ended with an error. A task that failed counts if the job itself has no event of its end.
func (h history) failed() bool {
	if _, failed := h.job[player.Failed]; failed {
		return true
	}
	_, finished := h.job[player.Finish]
	return !finished && len(h.task[player.Failed]) > 0
}

func (h history) finished() bool { return !h.failed() && h.last(player.Finish) < never }

// skew returns the time from the first to the last start of the job's tasks.
func (h history) skew() float64 {
	if len(h.task[player.Start]) < h.tasks {
		return never
	}
	starts := h.all(player.Start)
	return slices.Max(starts) - slices.Min(starts)
}
