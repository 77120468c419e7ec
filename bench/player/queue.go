package player

import (
	"slices"
	"sort"
	"time"

	"github.com/nixbench/nixbench/bench/workload"
)

// Queue contains the jobs of a workload that are not submitted yet.
type Queue struct {
	jobs  []workload.Job // those whose time of submission is known, in the order of these times
	times []time.Time    // the time of submission of each of these jobs
	held  map[string][]*heldJob
}

// heldJob is a job that is submitted after other jobs have ended.
type heldJob struct {
	workload.Job
	at   time.Time // the earliest time of submission
	open int       // number of jobs in After that have not ended
}

// NewQueue returns a queue of jobs, whose times of submission count from start. Jobs for which hold returns true are due when the jobs in
// their After have ended, and their think time has passed. For other jobs, After does not count.
func NewQueue(jobs []workload.Job, start time.Time, hold func(workload.Job) bool) *Queue {
	q := &Queue{held: map[string][]*heldJob{}}
	for _, j := range jobs {
		h := &heldJob{j, start.Add(workload.Seconds(j.Submit)), len(j.After)}
		if h.open == 0 || !hold(j) {
			q.jobs, q.times = append(q.jobs, j), append(q.times, h.at)
			continue
		}
		for _, a := range j.After {
			q.held[a] = append(q.held[a], h)
		}
	}
	return q
}

// Due returns the jobs that are due, in the order of their times. They remain in the queue.
func (q *Queue) Due(now time.Time) []workload.Job {
	n := sort.Search(len(q.times), func(i int) bool { return q.times[i].After(now) })
	return q.jobs[:n:n]
}

func (q *Queue) Remove(n int) { q.jobs, q.times = q.jobs[n:], q.times[n:] }

// Next returns the time at which the next job is due, but at most latest.
func (q *Queue) Next(latest time.Time) time.Time {
	if len(q.times) > 0 {
		return earlier(q.times[0], latest)
	}
	return latest
}

func (q *Queue) IsHolding() bool { return len(q.held) > 0 }

func (q *Queue) End(job string, at time.Time) {
	for _, h := range q.held[job] {
		if due := at.Add(workload.Seconds(h.Think)); due.After(h.at) {
			h.at = due
		}
		if h.open--; h.open == 0 {
			i := len(q.Due(h.at))
			q.jobs, q.times = slices.Insert(q.jobs, i, h.Job), slices.Insert(q.times, i, h.at)
		}
	}
	delete(q.held, job)
}

// Arrays divides jobs into groups of equal jobs in a row, each of which a scheduler takes as one job array. size returns the largest group that
// may begin with a job.
func Arrays(jobs []workload.Job, size func(workload.Job) int) (arrays [][]workload.Job) {
	for len(jobs) > 0 {
		n, largest := 1, size(jobs[0])
		for n < min(len(jobs), largest) && jobs[0].Like(jobs[n]) {
			n++
		}
		arrays, jobs = append(arrays, jobs[:n]), jobs[n:]
	}
	return arrays
}
