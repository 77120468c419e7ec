package trial

import (
	"cmp"
	"slices"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
)

// Span has the times of a job in seconds from the begin of the trial: the intended submission, the start (or the placement, if no start was
// reported) and the end. A time is infinite if its event did not happen.
type Span struct {
	Submit, Start, End float64
	CPUs               int // processors of all tasks
}

// ListSpans returns the times of the jobs of a trial that were to be submitted, in the order of their submission. The arguments have the same
// meaning as those of [Measure].
func ListSpans(jobs []workload.Job, began time.Time, events []player.Event) (out []Span) {
	known, _ := collect(jobs, began, events)
	ends := listEnds(jobs, known)
	for i, j := range jobs {
		span := Span{Submit: intendedSubmission(j, ends), Start: known[i].begin(), End: known[i].end(), CPUs: j.Tasks * max(j.CPUs, 1)}
		if span.Start == never {
			span.Start = known[i].last(player.Bound)
		}
		if span.Submit < never {
			out = append(out, span)
		}
	}
	slices.SortStableFunc(out, func(a, b Span) int { return cmp.Compare(a.Submit, b.Submit) })
	return out
}

// listEnds returns when each job has ended, by its id.
func listEnds(jobs []workload.Job, known []history) map[string]float64 {
	ends := map[string]float64{}
	for i, j := range jobs {
		if end := known[i].end(); end < never {
			ends[j.ID] = end
		}
	}
	return ends
}

// intendedSubmission returns the time at which a job is to be submitted: the time in the workload, or the think time after the end of the
// last job in After, whichever is later. ends contains the end times of jobs.
func intendedSubmission(j workload.Job, ends map[string]float64) float64 {
	at := j.Submit
	for _, a := range j.After {
		end, ended := ends[a]
		if !ended {
			end = never
		}
		at = max(at, end+j.Think)
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

// begin returns the time of the first instruction of the task of the job that started last.
func (h history) begin() float64 { return h.last(player.Start) }
