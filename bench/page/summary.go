package page

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/nixbench/nixbench/bench/stats"
	"github.com/nixbench/nixbench/bench/trial"
)

// Summary contains the results of a sweep that its page shows, as JSON for other programs.
type Summary struct {
	Means  []Mean  `json:"means"`
	Ratios []Ratio `json:"ratios"`
	Noise  []Noise `json:"noise"`
	Floor  []Ratio `json:"floor"` // comparisons of equal cells
}

// Mean is the geometric mean of a metric in a cell, with its confidence interval.
type Mean struct {
	Cell            map[string]string `json:"cell"`
	Metric          string            `json:"metric"`
	Unit            string            `json:"unit,omitempty"`
	Mean            *float64          `json:"mean"`             // null: a trial did not finish; the arithmetic mean if a value is 0 or less
	Reason          string            `json:"reason,omitempty"` // why there is no interval
	Trials          int               `json:"trials"`
	Unfinished      int               `json:"unfinished,omitempty"` // number of trials that did not finish
	*stats.Interval                   // of 95 %; nil if there is none
}

func (m Mean) text() string {
	if m.Mean == nil {
		return "did not finish"
	}
	return formatUnit(*m.Mean, m.Metric)
}

func (m Mean) trials() string {
	if m.Unfinished > 0 {
		return fmt.Sprintf("%d, %d did not finish", m.Trials, m.Unfinished)
	}
	return fmt.Sprint(m.Trials)
}

// Ratio is the ratio of the levels A and B of a factor, in one metric.
type Ratio struct {
	Cell   map[string]string `json:"cell"` // the levels of the other factors
	Factor string            `json:"factor"`
	A      string            `json:"a"`
	B      string            `json:"b"`
	Kind   string            `json:"kind,omitempty"` // the family of tests to which the comparison belongs: claim, primary or exploratory
	stats.Comparison
}

// Noise is the standard deviation of the results of trials, as a share, without what the trials of a block have in common.
type Noise struct {
	Metric string  `json:"metric"`
	Noise  float64 `json:"noise"`
}

// Summarise returns the means of all metrics, the ratios of levels, and the noise.
func Summarise(in Input) Summary {
	a := analyse(in)
	out := Summary{Means: a.means(), Ratios: append([]Ratio{}, a.ratios...), Noise: []Noise{}, Floor: append([]Ratio{}, a.floor...)}
	for _, m := range a.metrics {
		if n := a.noiseOf(m); !math.IsNaN(n) {
			out.Noise = append(out.Noise, Noise{m, n})
		}
	}
	return out
}

func (a analysis) means() []Mean {
	out := []Mean{}
	for _, g := range a.cells {
		for _, m := range allMetrics(g.Samples) {
			s, ok := stats.Mean(g.Samples, m)
			if !ok {
				continue
			}
			x := Mean{Cell: g.Cell, Metric: m, Unit: trial.Unit(m), Trials: s.Count, Unfinished: s.Incomplete, Reason: s.Reason, Interval: s.Interval}
			if !math.IsInf(s.Mean, 0) { // JSON cannot contain infinity
				x.Mean = &s.Mean
			}
			out = append(out, x)
		}
	}
	return out
}

// allMetrics returns the metrics of samples: first those of trial.Metrics in its order, then the other ones by name. The makespan is
// included also if all trials are unfinished and have none, because the text of its mean then tells this.
func allMetrics(samples []stats.Sample) []string {
	have := map[string]bool{}
	if stats.CountIncomplete(samples) > 0 {
		have["makespan"] = true
	}
	for _, s := range samples {
		for m := range s.Metrics {
			have[m] = true
		}
	}
	var out []string
	for _, m := range trial.Metrics {
		if have[m] {
			out = append(out, m)
			delete(have, m)
		}
	}
	return append(out, slices.Sorted(maps.Keys(have))...)
}
