package page

import (
	"maps"
	"math"
	"slices"

	"github.com/nixbench/nixbench/bench/stats"
	"github.com/nixbench/nixbench/bench/trial"
)

// Summary contains the results of a sweep that its page shows, as JSON for other programs.
type Summary struct {
	Means  []stats.Summary `json:"means"`
	Ratios []Ratio         `json:"ratios"`
	Noise  []Noise         `json:"noise"`
	Floor  []Ratio         `json:"floor"` // comparisons of equal cells
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

func (a analysis) means() []stats.Summary {
	out := []stats.Summary{}
	for _, g := range a.cells {
		for _, m := range allMetrics(g.Samples) {
			if s, ok := stats.Mean(g.Samples, m); ok {
				s.Cell, s.Unit = g.Cell, trial.Unit(m)
				out = append(out, s)
			}
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
