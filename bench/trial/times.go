package trial

import (
	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
)

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
