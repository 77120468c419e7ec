package results

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/page"
	"github.com/nixbench/nixbench/bench/stats"
	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/deploy/event"
)

// assumedDeployment is the time, in seconds, of the deployment before a trial, if the hive has had no trial yet.
const assumedDeployment = 60

// Duration is how long trials are expected to take, without the builds of their systems and without repetitions.
type Duration struct {
	Seconds  float64 `json:"seconds"`
	Trials   int     `json:"trials"`
	Measured int     `json:"measured"` // number of trials that count with the time of former trials of their cell
	// Deployment is how many seconds each other trial takes in addition to the times of its jobs, on average of all former trials of the hive.
	// Assumed means that there is none: Deployment is then an assumption.
	Deployment float64 `json:"deployment"`
	Assumed    bool    `json:"assumed"`
}

// History has how long former trials of a benchmark took.
type History struct {
	bench.Benchmark
	workloads map[string]bench.Workload
	jobs      map[string][]workload.Job
	took      map[string][]float64 // seconds of the trials of each cell in the last sweep that has some
	sweep     map[string]string    // the id of this sweep
	others    []float64            // seconds of all trials without their workloads
}

// NewHistory returns the history of a benchmark with these workloads. former are sweeps of the hive, the oldest first.
func NewHistory(b bench.Benchmark, workloads map[string]bench.Workload, jobs map[string][]workload.Job, former []*bench.Store) (*History, error) {
	h := &History{b, workloads, jobs, map[string][]float64{}, map[string]string{}, nil}
	for _, st := range former {
		all, err := st.AllAttempts()
		if err != nil {
			return nil, err
		}
		for _, t := range st.Sweep.Trials {
			for _, a := range all[t.Number] {
				h.Add(st.Sweep, t, a)
			}
		}
	}
	return h, nil
}

// Add adds an attempt of a trial of a sweep.
func (h *History) Add(s bench.Sweep, t bench.Trial, a bench.Attempt) {
	w, of, cell := t.Workload(), s.Benchmark, t.String()
	if a.State == bench.Failed || of.Reset != h.Reset {
		return
	}
	seconds := a.Ended.Sub(a.Began).Seconds()
	h.others = append(h.others, seconds-a.Phases["play"])
	if s.Workloads[w] != h.workloads[w] || !a.Result.Complete && of.Workloads[w].TimeLimit != h.Workloads[w].TimeLimit {
		return
	}
	if h.sweep[cell] != s.ID {
		h.took[cell], h.sweep[cell] = nil, s.ID
	}
	h.took[cell] = append(h.took[cell], seconds)
}

func (h *History) Expect(trials []bench.Trial) (d Duration) {
	if d.Deployment, d.Assumed = mean(h.others), len(h.others) == 0; d.Assumed {
		d.Deployment = assumedDeployment
	}
	d.Trials = len(trials)
	for i, t := range trials {
		if former := h.took[t.String()]; len(former) > 0 {
			d.Measured++
			d.Seconds += mean(former)
			continue
		}
		limit, list := h.Workloads[t.Workload()].TimeLimit, h.jobs[t.Workload()]
		if len(list) > 0 { // otherwise, a program decides the jobs
			limit = min(limit, workload.Length(list))
		}
		d.Seconds += limit
		if d.Assumed {
			d.Seconds += h.Pause
		}
		if !d.Assumed || h.Reset == bench.Fresh || i == 0 || trials[i-1].Configuration != t.Configuration {
			d.Seconds += d.Deployment
		}
	}
	return d
}

// Left returns the duration as text for the trials of a sweep that are left.
func (d Duration) Left() string {
	return fmt.Sprintf("about %v left", workload.Seconds(d.Seconds).Round(10*time.Second))
}

// String returns the duration as text, with its basis.
func (d Duration) String() string {
	var basis []string
	if d.Measured > 0 {
		basis = append(basis, event.Count(d.Measured, "trial")+" as in former trials of the cell")
	}
	if n := d.Trials - d.Measured; n > 0 {
		how := map[bool]string{true: "an assumed", false: "a measured"}[d.Assumed]
		basis = append(basis, fmt.Sprintf("%s by the times of the jobs and %s %s per deployment", event.Count(n, "trial"), how, formatSeconds(d.Deployment)))
	}
	return fmt.Sprintf("expected duration: %s, without builds and repeated trials (%s)", formatSeconds(d.Seconds), strings.Join(basis, "; "))
}

func mean(values []float64) (m float64) {
	for _, v := range values {
		m += v / float64(len(values))
	}
	return m
}

// Design is what the comparisons of a benchmark can see.
type Design struct {
	Blocks      int      `json:"blocks"`
	Comparisons int      `json:"comparisons"` // of the primary metrics, or of all main metrics if the benchmark names none
	Noise       float64  `json:"noise"`       // the assumed standard deviation of the results of a trial, as a share
	Ratio       *float64 `json:"ratio"`       // found with a probability of 80 %; null: there are too few blocks
}

// NewDesign returns what the comparisons of a benchmark can see if the results of trials have this noise.
func NewDesign(b bench.Benchmark, noise float64) Design {
	metrics := cmp.Or(len(b.Metrics), len(page.MainMetrics))
	d := Design{Blocks: b.Repetitions, Comparisons: metrics * page.CountComparisons(b.Cells), Noise: noise}
	if ratio := stats.Detectable(noise, d.Blocks, d.Comparisons); !math.IsInf(ratio, 0) {
		d.Ratio = &ratio
	}
	return d
}

func (d Design) String() string {
	switch {
	case d.Comparisons == 0:
		return "there is nothing to compare: no factor has several levels"
	case d.Ratio == nil:
		return fmt.Sprintf("comparisons have no answers: they need %d blocks", stats.MinUnits)
	}
	return fmt.Sprintf("if the noise of a trial is %.2g %%, %s with %s can see a ratio of %.3g",
		100*d.Noise, event.Count(d.Comparisons, "comparison"), event.Count(d.Blocks, "block"), *d.Ratio)
}
