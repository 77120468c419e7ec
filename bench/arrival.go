package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/deploy/durable"
)

// MakeJobs returns the jobs of a workload. It returns no jobs if the program of the workload decides which jobs it submits. seed determines
// the random times of submission.
func MakeJobs(name string, w WorkloadOptions, seed uint64) ([]workload.Job, error) {
	if len(w.Program) > 0 && len(w.Jobs) == 0 && w.Trace == nil {
		return nil, nil
	}
	jobs, err := decodeJobs(w, seed)
	if err == nil {
		jobs, err = workload.Prepare(jobs)
	}
	if err != nil {
		return nil, fmt.Errorf("workloads.%s: %w", name, err)
	}
	return jobs, nil
}

// decodeJobs returns the jobs of the trace of a workload, or the jobs that the workload lists. A listed job without a time of submission
// gets the next time of w.Arrival.
func decodeJobs(w WorkloadOptions, seed uint64) ([]workload.Job, error) {
	if w.Trace != nil {
		f, _, err := durable.Open(*w.Trace)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		jobs, err := workload.ReadSWF(f, w.SWFOptions)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", *w.Trace, err)
		}
		return jobs, nil
	}
	times := newArrivals(w.Arrival, seed, 0)
	var out []workload.Job
	for i, text := range w.Jobs {
		j, err := workload.Decode(text)
		if err != nil {
			return nil, fmt.Errorf("job %d: %w", i+1, err)
		}
		if !gjson.GetBytes(text, "submit").Exists() {
			j.Submit, j.Drawn = times(), w.Arrival.Poisson
		}
		out = append(out, j)
	}
	return out, nil
}

// newArrivals returns a function. Each call of this function returns the time at which the next job is submitted. Each block has other random
// times.
func newArrivals(a Arrival, seed uint64, block int) func() float64 {
	random := rand.New(rand.NewPCG(seed, 1<<32+uint64(block)))
	next := 0.0
	return func() float64 {
		now := next
		switch {
		case a.Rate == 0:
		case a.Poisson:
			next += random.ExpFloat64() / a.Rate
		default:
			next += 1 / a.Rate
		}
		return now
	}
}

// drawAgain returns the jobs with the random times of submission of a block. They are the same for all cells of the block.
func drawAgain(jobs []workload.Job, a Arrival, seed uint64, block int) ([]workload.Job, error) {
	if !slices.ContainsFunc(jobs, func(j workload.Job) bool { return j.Drawn }) {
		return jobs, nil
	}
	jobs = slices.Clone(jobs)
	times := newArrivals(a, seed, block)
	for i := range jobs {
		if jobs[i].Drawn {
			jobs[i].Submit = times()
		}
	}
	return workload.Prepare(jobs)
}
