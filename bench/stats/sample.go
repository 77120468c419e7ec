// Package stats compares the trials of a sweep.
//
// A sweep repeats all its cells in blocks: a block contains each cell once, at about the same time. [Ratio] compares two cells block by
// block. So slow changes of the machines, which affect both cells equally, cancel out. [Holm] corrects for the number of comparisons:
// without it, one of twenty comparisons of equal cells would find a difference. A [Claim] is an expectation that a benchmark declares.
//
// Everything is computed from the mean of logarithms and the t-test. The interval of the median of the ratios (Hodges and Lehmann) is as good
// for one comparison, but with six blocks its smallest p-value is 0.03, so that no correction for several comparisons would leave an answer.
package stats

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Sample is the result of a trial. Cell maps factors to the levels that the trial measured.
type Sample struct {
	Cell       map[string]string
	Block      int
	Order      int                // number of the trial in the order of time
	Metrics    map[string]float64 // values by the names of metrics; a metric that the trial could not measure is absent
	Incomplete bool               // not all jobs finished
}

// Summary is the geometric mean of a metric in a cell, with its confidence interval.
type Summary struct {
	Cell       map[string]string `json:"cell"`
	Metric     string            `json:"metric"`
	Unit       string            `json:"unit,omitempty"`
	Mean       *float64          `json:"mean"`             // null: a trial did not finish; the arithmetic mean if a value is 0 or less
	Reason     string            `json:"reason,omitempty"` // why there is no interval
	Trials     int               `json:"trials"`
	Unfinished int               `json:"unfinished,omitempty"` // number of trials that did not finish
	*Interval                    // of 95 %; nil with fewer than [MinUnits] blocks, or if a value is 0 or less
	estimate   estimate
}

// Mean returns the mean of a metric, without its cell and unit. It returns false if no sample has the metric.
func Mean(samples []Sample, metric string) (Summary, bool) {
	if !isMeasured(samples, metric) {
		return Summary{}, false
	}
	var values []float64
	for _, s := range samples {
		if v, ok := s.value(metric); ok {
			values = append(values, v)
		}
	}
	unfinished, reason := findUnusable(samples, metric)
	out := Summary{Metric: metric, Trials: len(values), Unfinished: CountIncomplete(samples), Reason: reason}
	if unfinished > 0 {
		out.Trials = len(samples)
		return out, true
	}
	if reason != "" {
		mean, _ := deviations(values)
		out.Mean = &mean
		return out, len(values) > 0
	}
	logs := slices.Sorted(maps.Values(blockLogs(samples, metric))) // sorted, so that each run computes the same sum
	if len(logs) == 0 {
		return out, false
	}
	out.estimate = estimateMean(logs)
	out.Mean = new(math.Exp(out.estimate.mean))
	if len(logs) < MinUnits {
		out.Reason = tooFewBlocks
		return out, true
	}
	out.Interval = new(out.estimate.interval(Level))
	return out, true
}

// value returns the value of a metric of a trial, and false if the trial has not measured this metric.
func (s Sample) value(metric string) (float64, bool) {
	v, have := s.Metrics[metric]
	return v, have && !math.IsNaN(v) && !math.IsInf(v, 0)
}

// findUnusable returns the number of unfinished samples without a value above 0 and, if the samples have no geometric mean, the reason.
func findUnusable(samples []Sample, metric string) (unfinished int, reason string) {
	low := 0
	for _, s := range samples {
		switch v, ok := s.value(metric); {
		case s.Incomplete && (!ok || v <= 0):
			unfinished++
		case ok && v <= 0:
			low++
		}
	}
	switch {
	case unfinished > 0:
		reason = describeIncomplete(unfinished, len(samples))
	case low > 0:
		reason = fmt.Sprintf("the value of %d of %d trials is 0 or less", low, len(samples))
	}
	return unfinished, reason
}

func describeIncomplete(n, trials int) string {
	return fmt.Sprintf("%d of %d trials did not finish", n, trials)
}

func CountIncomplete(samples []Sample) int {
	return len(Keep(samples, func(s Sample) bool { return s.Incomplete }))
}

// isMeasured reports whether trials can have a metric: at least one sample has the metric, or no sample is complete.
func isMeasured(samples []Sample, metric string) bool {
	hasValue := func(s Sample) bool {
		_, ok := s.value(metric)
		return ok
	}
	return slices.ContainsFunc(samples, hasValue) || CountIncomplete(samples) == len(samples)
}

// blockLogs returns the mean logarithm of the values in each block. All values must be above 0.
func blockLogs(samples []Sample, metric string) map[int]float64 {
	logs := map[int][]float64{}
	for _, s := range samples {
		if v, ok := s.value(metric); ok {
			logs[s.Block] = append(logs[s.Block], math.Log(v))
		}
	}
	out := map[int]float64{}
	for block, all := range logs {
		out[block], _ = deviations(all)
	}
	return out
}

// pairBlocks returns the blocks that contain samples of both a and b, and the samples of a and of b in these blocks.
func pairBlocks(a, b []Sample) (inA, inB []Sample, blocks []int) {
	in := func(samples []Sample) func(Sample) bool {
		return func(s Sample) bool {
			return slices.ContainsFunc(samples, func(other Sample) bool { return other.Block == s.Block })
		}
	}
	inA, inB = Keep(a, in(b)), Keep(b, in(a))
	blocks = Map(inA, func(s Sample) int { return s.Block })
	slices.Sort(blocks)
	return inA, inB, slices.Compact(blocks)
}

// JoinLevels returns the factors and levels of a cell, sorted by factor, with a separator.
func JoinLevels(cell map[string]string, separator string) string {
	return strings.Join(Map(slices.Sorted(maps.Keys(cell)), func(f string) string { return f + "=" + cell[f] }), separator)
}

// Without returns a copy of a cell without these factors.
func Without(cell map[string]string, factors ...string) map[string]string {
	out := maps.Clone(cell)
	maps.DeleteFunc(out, func(f, _ string) bool { return slices.Contains(factors, f) })
	return out
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
		cell := Without(s.Cell, without...)
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

// Select returns the samples of the given level of a factor, or all if the factor has no name.
func Select(samples []Sample, factor, level string) []Sample {
	return Keep(samples, func(s Sample) bool { l, have := s.Cell[factor]; return have && l == level || factor == "" })
}

// Keep returns a new list of those values for which f returns true.
func Keep[T any](all []T, f func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(v T) bool { return !f(v) })
}

// Map returns what f returns for each value.
func Map[T, U any](all []T, f func(T) U) (out []U) {
	for _, v := range all {
		out = append(out, f(v))
	}
	return out
}
