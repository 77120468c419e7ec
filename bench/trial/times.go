package trial

import (
	"slices"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
)

// Times contains when the jobs of a trial were created, placed and finished, and how long they waited. All lists are in seconds and
// sorted. A job is in a list only if the event of the list happened and was reported.
type Times struct {
	Jobs     int       // number of all jobs
	Created  []float64 // seconds from the begin of the trial until the job, or its first task, existed
	Bound    []float64 // seconds from the begin of the trial until the last task was placed
	Finished []float64 // seconds from the begin of the trial until the last task ended without an error
	Wait     []float64 // see the metric wait
	Schedule []float64 // see the metric schedule
}

// ListTimes returns the times of the jobs of a trial. The arguments have the same meaning as those of [Measure].
func ListTimes(jobs []workload.Job, began time.Time, events []player.Event) Times {
	known := collect(jobs, events, &Result{Began: began})
	d := listDurations(jobs, known)
	out := Times{Jobs: len(jobs), Wait: d.wait, Schedule: d.schedule}
	for _, h := range known {
		out.Created = append(out.Created, h.first(player.Created))
		out.Bound = append(out.Bound, h.last(player.Bound))
		if h.finished() {
			out.Finished = append(out.Finished, h.end())
		}
	}
	for _, list := range []*[]float64{&out.Created, &out.Bound, &out.Finished, &out.Wait, &out.Schedule} {
		*list = slices.DeleteFunc(*list, func(v float64) bool { return v == never })
		slices.Sort(*list)
	}
	return out
}

// intendedSubmission returns the time at which a job is to be submitted: the time in the workload, or the time at which the last job
// in After ended, whichever is later. ends contains the end times of jobs.
func intendedSubmission(j workload.Job, ends map[string]float64) float64 {
	at := j.Submit
	for _, a := range j.After {
		end, ended := ends[a]
		if !ended {
			end = never
		}
		at = max(at, end)
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

// begin returns the time at which the last task of the job started. If the scheduler reports no start, it returns the time at which this
// task was placed.
func (h history) begin() float64 {
	if start := h.last(player.Start); start < never {
		return start
	}
	return h.last(player.Bound)
}
