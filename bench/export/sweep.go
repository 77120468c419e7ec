// Package export writes the results of a sweep in the formats of other programs: CSV with one observation per row, the benchmark format of
// Go, and the Standard Workload Format.
//
// All formats contain the trials in the order of the sweep. Everything without an order is sorted, so that equal sweeps give equal files.
package export

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/noise"
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
	s, err := Read(st)
	switch {
	case err != nil:
		return err
	case format == "csv":
		return CSV(w, s)
	case format == "gobench":
		return GoBench(w, s)
	}
	for _, t := range s.Trials {
		if t.Order == trial && (t.Verdict == bench.Valid || t.Verdict == bench.Suspect) {
			return SWF(w, s, t)
		}
	}
	return failure.NewUsage("trial %d of %s has no result; nixbench bench show lists the trials", trial, s.ID)
}

// Sweep contains the trials of one execution of a benchmark, for export.
type Sweep struct {
	Name    string
	ID      string
	Version string // the version of nixbench
	Started time.Time
	Factors []string
	Trials  []Trial
}

// Trial is a trial of a cell, with its result.
type Trial struct {
	Cell    string
	Levels  map[string]string // the level of each factor
	Block   int
	Order   int      // number of the trial in the order of the sweep
	Attempt int      // number of the attempt to execute the trial, from 1
	Verdict string   // valid, suspect or invalid
	Reasons []string // reasons of the verdict, only for the format CSV
	// Noise has the noise figures of the computer during the trial, by name. Only the format CSV contains these figures.
	Noise   map[string]float64
	Started time.Time
	Ended   time.Time
	Metrics map[string]float64
	// Requests has, by the name of a kind of request, the number of such requests. Only the format CSV contains these numbers.
	Requests map[string]float64
	Events   string // path of the file with the events, relative to the folder of the sweep
	Jobs     []Job
}

// Job is a job of a trial with the times of its events, in seconds after the start of the trial. A time is nil if it was not observed.
type Job struct {
	workload.Job
	Submitted *float64
	Started   *float64
	Ended     *float64
	Failed    bool // whether the job has ended with an error, or was refused
}

// Read reads the attempts of a sweep that have a result, without the trials of the warm-up.
func Read(st *bench.Store) (Sweep, error) {
	s := st.Sweep
	out := Sweep{Name: s.Name, ID: s.ID, Version: s.Nixbench, Started: s.Created, Factors: slices.Sorted(maps.Keys(s.Benchmark.Factors))}
	for _, t := range s.Trials {
		attempts, err := st.Attempts(t.Number)
		if err != nil {
			return out, err
		}
		for _, a := range attempts {
			if t.Block == 0 || a.State == bench.Failed {
				continue
			}
			x := Trial{
				Cell: t.String(), Levels: t.Cell, Block: t.Block, Order: t.Number, Attempt: a.Number, Verdict: a.State, Started: a.Began, Ended: a.Ended,
				Reasons: a.Reasons, Metrics: a.Result.Metrics, Requests: map[string]float64{}, Noise: noiseFigures(a),
				Events: fmt.Sprintf("trials/%d/%d/events.jsonl", t.Number, a.Number),
			}
			for _, r := range a.Requests {
				x.Requests[r.Name()] += float64(r.Count)
			}
			jobs, events, err := st.Played(t, a)
			if err != nil {
				return out, err
			}
			x.Jobs = addTimes(jobs, events, a.Result.Began)
			out.Trials = append(out.Trials, x)
		}
	}
	return out, nil
}

// noiseFigures returns the figures in the noise report of an attempt by their names, such as kernel_messages.
func noiseFigures(a bench.Attempt) map[string]float64 {
	var r noise.Report
	if len(a.Noise) == 0 || json.Unmarshal(a.Noise, &r) != nil {
		return nil
	}
	return maps.Collect(r.Figures())
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

// columns returns the names of the factors as columns. A name that is already in use gets a prefix.
func (s Sweep) columns() []string {
	used := map[string]bool{}
	for _, c := range ownColumns {
		used[c] = true
	}
	var out []string
	for _, f := range s.Factors {
		name := f
		if used[name] {
			name = "factor_" + name
		}
		free := name
		for n := 2; used[free]; n++ {
			free = name + "_" + strconv.Itoa(n)
		}
		used[free] = true
		out = append(out, free)
	}
	return out
}

// levels returns the levels of a trial in the order of the factors.
func (s Sweep) levels(t Trial) []string {
	var out []string
	for _, f := range s.Factors {
		out = append(out, t.Levels[f])
	}
	return out
}

// metricNames returns the sorted names of the metrics of a trial.
func (t Trial) metricNames() []string { return slices.Sorted(maps.Keys(t.Metrics)) }

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
