// Package export writes the results of a sweep in the formats of other programs: CSV with one observation per row, the benchmark format of
// Go, and the Standard Workload Format.
//
// All formats contain the trials in the order of the sweep. Everything without an order is sorted, so that equal sweeps give equal files.
package export

import (
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/deploy/failure"
)

// Formats are the names of the formats of [Write].
var Formats = []string{"csv", "gobench", "swf", "archive"}

// Write writes a sweep in a format. The format swf contains the jobs of one trial only; trial is the number of this trial.
func Write(w io.Writer, st *bench.Store, format string, trial int) error {
	if format == "archive" {
		return st.WriteArchive(w)
	}
	trials, err := list(st)
	switch {
	case err != nil:
		return err
	case format == "csv":
		return CSV(w, st.Sweep, trials)
	case format == "gobench":
		return GoBench(w, st.Sweep, trials)
	}
	for _, t := range trials {
		if t.Number == trial && t.Attempt.Counts() {
			jobs, events, err := st.Played(t.Trial, t.Attempt)
			if err != nil {
				return err
			}
			return SWF(w, st.Sweep, t, addTimes(jobs, events, t.Attempt.Result.Began))
		}
	}
	return failure.NewUsage("trial %d of %s has no result; nixbench bench show lists the trials", trial, st.Sweep.ID)
}

// Trial is a trial with one of its attempts that have a result.
type Trial struct {
	bench.Trial
	Attempt bench.Attempt
}

// Job is a job of a trial with the times of its events, in seconds after the start of the trial. A time is nil if it was not observed.
type Job struct {
	workload.Job
	Submitted *float64
	Started   *float64
	Ended     *float64
	Failed    bool // whether the job has ended with an error, or was refused
}

// list returns the attempts of a sweep that have a result, without the trials of the warm-up.
func list(st *bench.Store) ([]Trial, error) {
	all, err := st.AllAttempts()
	var out []Trial
	for _, t := range st.Sweep.Trials {
		for _, a := range all[t.Number] {
			if t.Block > 0 && a.State != bench.Failed {
				out = append(out, Trial{t, a})
			}
		}
	}
	return out, err
}

// addTimes returns the jobs of a trial, each with the times of its events.
func addTimes(jobs []workload.Job, events []player.Event, began time.Time) []Job {
	out := make([]Job, len(jobs))
	index := map[string]int{}
	for i, j := range jobs {
		out[i].Job, index[j.ID] = j, i
	}
	for _, e := range events {
		i, ok := index[e.Job]
		if !ok {
			continue
		}
		at := e.Time.Sub(began).Seconds()
		j := &out[i]
		switch e.Kind {
		case player.Submit:
			j.Submitted = &at
		case player.Start, player.Bound:
			if j.Started == nil || e.Kind == player.Start && *j.Started < at {
				j.Started = &at
			}
		case player.Finish:
			if j.Ended == nil || *j.Ended < at {
				j.Ended = &at
			}
		case player.Failed:
			j.Ended, j.Failed = &at, true
		}
	}
	return out
}

// ownColumns are the names of the columns that each table has. A factor with such a name gets another name.
var ownColumns = []string{"sweep", "sweep_id", "cell", "block", "order", "attempt", "verdict", "reasons", "metric", "value"}

// factors returns the factors of a sweep, sorted.
func factors(s bench.Sweep) []string { return slices.Sorted(maps.Keys(s.Benchmark.Factors)) }

// columns returns the names of the factors as columns. A name that is already in use gets a prefix.
func columns(s bench.Sweep) []string {
	var out []string
	isUsed := func(name string) bool { return slices.Contains(ownColumns, name) || slices.Contains(out, name) }
	for _, name := range factors(s) {
		if isUsed(name) {
			name = "factor_" + name
		}
		free := name
		for n := 2; isUsed(free); n++ {
			free = name + "_" + strconv.Itoa(n)
		}
		out = append(out, free)
	}
	return out
}

// metricNames returns the sorted names of the metrics of a trial.
func (t Trial) metricNames() []string { return slices.Sorted(maps.Keys(t.Attempt.Result.Metrics)) }

// format returns a number as text, with the digits that are needed to parse exactly the same number from the text.
func format(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "+Inf"
	case v == math.Trunc(v) && math.Abs(v) < 1e15:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
