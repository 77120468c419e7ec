// Package stats compares the trials of a sweep.
//
// A sweep repeats all its cells in blocks: a block contains each cell once, at about the same time. [Ratio] compares two cells block by
// block. So slow changes of the machines, which affect both cells equally, cancel out. [Holm] corrects for the number of comparisons:
// without it, one of twenty comparisons of equal cells would find a difference. A [Claim] is a text with an expectation about a ratio.
package stats

import (
	"maps"
	"math"
	"slices"
	"strings"

	"golang.org/x/perf/benchmath"
)

// Sample is the result of a trial. Cell maps factors to the levels that the trial measured.
type Sample struct {
	Cell       map[string]string
	Block      int
	Order      int                // number of the trial in the order of time
	Metrics    map[string]float64 // values by the names of metrics; a metric that the trial could not measure is absent
	Incomplete bool               // not all jobs finished
}

// Confidence is the confidence level of all intervals.
const Confidence = 0.95

// Interval is a confidence interval.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Summary is the median of a metric. The interval is absent with fewer than [MinBlocks] values. The median, or an end of the interval, is
// infinite if it is the value of a trial that did not finish.
type Summary struct {
	Median     float64
	Interval   *Interval
	Count      int // number of trials
	Incomplete int // number of trials that did not finish
}

// Median returns the median of a metric with its confidence interval. The interval assumes no distribution of the values. Median returns
// false if no sample has the metric. A trial that did not finish and has no value counts as worse than all others: if such trials were
// left out, a cell that finishes rarely would look fast.
func Median(samples []Sample, metric string) (Summary, bool) {
	if !isMeasured(metric, samples) {
		return Summary{}, false
	}
	var values []float64
	out := Summary{Incomplete: CountIncomplete(samples)}
	for _, s := range samples {
		v, have := s.value(metric)
		if !have && s.Incomplete {
			v = worst(metric)
		}
		if have || s.Incomplete {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return Summary{}, false
	}
	b := benchmath.AssumeNothing.Summary(benchmath.NewSample(values, &benchmath.DefaultThresholds), Confidence)
	out.Median, out.Count = toInfinite(b.Center), len(values)
	if !math.IsInf(b.Lo, 0) && !math.IsInf(b.Hi, 0) {
		out.Interval = &Interval{toInfinite(b.Lo), toInfinite(b.Hi)}
	}
	return out, true
}

// beyond stands for infinity in computations, and is larger than all values. It is finite, because the mean of two infinite values of
// different signs is NaN.
const beyond = math.MaxFloat64 / 16

// worst returns the value of a metric for a trial that did not finish. It is larger than all values if the metric is a time, and smaller
// than all values if the metric is a rate.
func worst(metric string) float64 {
	if metric == "throughput" || metric == "utilisation" || strings.HasSuffix(metric, "_rate") {
		return -beyond
	}
	return beyond
}

// toInfinite returns an infinite value if v was computed from beyond, and otherwise v.
func toInfinite(v float64) float64 {
	if math.Abs(v) >= beyond/4 {
		return math.Copysign(math.Inf(1), v)
	}
	return v
}

// Name returns the name of a cell: the factors and levels of the cell, sorted by factor.
func Name(cell map[string]string) string { return JoinLevels(cell, ", ") }

// JoinLevels returns the factors and levels of a cell, sorted by factor, with a separator.
func JoinLevels(cell map[string]string, separator string) string {
	var out []string
	for _, f := range slices.Sorted(maps.Keys(cell)) {
		out = append(out, f+"="+cell[f])
	}
	return strings.Join(out, separator)
}

// Group is the samples of one combination of levels.
type Group struct {
	Cell    map[string]string
	Samples []Sample
}

// GroupBy groups samples by the levels of all factors except those in without. Groups are in the order of their first samples.
func GroupBy(samples []Sample, without ...string) []Group {
	var out []Group
	index := map[string]int{}
	for _, s := range samples {
		cell := maps.Clone(s.Cell)
		for _, f := range without {
			delete(cell, f)
		}
		key := JoinLevels(cell, "\x00")
		i, known := index[key]
		if !known {
			i = len(out)
			index[key] = i
			out = append(out, Group{Cell: cell})
		}
		out[i].Samples = append(out[i].Samples, s)
	}
	return out
}

// Select returns the samples of the given level of a factor.
func Select(samples []Sample, factor, level string) []Sample {
	var out []Sample
	for _, s := range samples {
		if l, have := s.Cell[factor]; have && l == level {
			out = append(out, s)
		}
	}
	return out
}
