package playertest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
)

// rateTimeout is the time limit of the workload that Rate plays.
const rateTimeout = 2 * time.Minute

// Burst returns n jobs that are due at once and end as soon as they start.
func Burst(n int) []workload.Job {
	jobs := make([]workload.Job, n)
	for i := range jobs {
		jobs[i] = workload.Job{ID: fmt.Sprintf("b-%d", i+1)}
	}
	return jobs
}

// Rate plays a workload on a cluster whose scheduler takes no time. It returns how many jobs per second ended, from the start of
// the workload to the last end of a job. This is the maximum rate that the player can measure.
func Rate(tb testing.TB, p player.Player, jobs []workload.Job) float64 {
	tb.Helper()
	prepared, err := workload.Prepare(jobs)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), rateTimeout, fmt.Errorf("the jobs have not ended within %v", rateTimeout))
	defer cancel()
	events, start, err := Play(ctx, p, prepared)
	if err != nil {
		tb.Fatal(err)
	}
	ended, last := 0, start
	for _, e := range events {
		if e.Kind == player.Finish && e.Task == 0 {
			ended, last = ended+1, e.Time
		}
	}
	if ended != len(jobs) {
		tb.Fatalf("%d of %d jobs have finished", ended, len(jobs))
	}
	return float64(ended) / last.Sub(start).Seconds()
}

// ReportRate reports the result of Rate in a benchmark.
func ReportRate(b *testing.B, p player.Player, jobs []workload.Job) {
	b.Helper()
	b.ReportMetric(Rate(b, p, jobs), "jobs/s")
}
