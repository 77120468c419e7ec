package page

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/stats"
	"github.com/nixbench/nixbench/bench/trial"
)

// MainMetrics are the metrics that are drawn and compared.
var MainMetrics = []string{"throughput", "bind_rate", "makespan", "wait_p50", "wait_p99", "slowdown_p99"}

// analysis contains everything that is computed from the trials of a sweep. The page and the text summary use it.
type analysis struct {
	cells   []stats.Group // all trials that count, in the order of the cells
	base    []stats.Sample
	all     []Trial  // all trials in the order of their cells; the trials of a cell in the order of time
	metrics []string // names of the metrics that are drawn and compared, and that at least one trial has
	factors []factor // factors with several levels, without the factor repeat
	ratios  []ratio  // comparisons of the levels of factors
	floor   []ratio  // the noise floor: comparisons of trials with equal settings
	kind    string   // what floor compares: floorCells, floorBlocks, or an empty string if nothing
}

// Values of analysis.kind: what the noise floor compares.
const (
	floorCells  = "cells"  // the noise floor compares equal cells, which differ only in the factor repeat
	floorBlocks = "blocks" // the noise floor compares one half of the blocks of each cell with the other half
)

// factor is a factor with several levels.
type factor struct {
	name    string
	levels  []string
	numbers []float64 // values of the levels, if all of them are numbers; the levels are then sorted
}

// ratio is a comparison of two levels of a factor, in one metric.
type ratio struct {
	factor string
	a, b   string // the two levels; the ratio is the median of a divided by the median of b
	cell   map[string]string
	stats.Comparison
}

// analyse computes the medians, the comparisons and the noise floor of a sweep from its trials.
func analyse(in Input) analysis {
	a := analysis{all: sortTrials(in)}
	var samples []stats.Sample
	for _, t := range a.all {
		if t.Verdict != bench.Invalid {
			samples = append(samples, t.Sample)
		}
	}
	a.cells = stats.GroupBy(samples)
	a.metrics = presentMetrics(samples)
	a.base = a.splitRepeats(samples)
	if len(a.floor) == 0 {
		a.splitBlocks()
	}
	a.factors = findFactors(a.base)
	for _, f := range a.factors {
		// Do not compare workloads with each other: such a difference says nothing about a scheduler. Each additional comparison
		// also makes the correction for their number stricter, so that fewer answers are clear.
		if f.name != bench.WorkloadFactor {
			a.compareLevels(f)
		}
	}
	correct(a.ratios)
	correct(a.floor) // correct the ratios of the noise floor separately: more ratios in one correction make clear answers rarer
	if a.kind == floorBlocks {
		explainHalves(a.floor)
	}
	return a
}

// correct applies the Holm correction for the number of comparisons to all ratios.
func correct(ratios []ratio) {
	var all []*stats.Comparison
	for i := range ratios {
		all = append(all, &ratios[i].Comparison)
	}
	stats.Holm(all)
}

// sortTrials sorts trials by the order of the cells, and the trials of a cell by time.
func sortTrials(in Input) []Trial {
	place := map[string]int{}
	for i, c := range in.Cells {
		place[stats.Name(c)] = i
	}
	of := func(t Trial) int {
		if i, known := place[stats.Name(t.Cell)]; known {
			return i
		}
		return len(in.Cells)
	}
	out := slices.Clone(in.Trials)
	slices.SortStableFunc(out, func(a, b Trial) int { return cmp.Or(cmp.Compare(of(a), of(b)), cmp.Compare(a.Order, b.Order)) })
	return out
}

// presentMetrics returns those of the MainMetrics that at least one sample has.
func presentMetrics(samples []stats.Sample) []string {
	var out []string
	for _, m := range MainMetrics {
		if slices.ContainsFunc(samples, func(s stats.Sample) bool { _, have := s.Metrics[m]; return have || s.Incomplete && m == "makespan" }) {
			out = append(out, m)
		}
	}
	return out
}

// splitRepeats returns the samples of the first one of each set of equal cells. It compares the other cells of the set with the first one.
func (a *analysis) splitRepeats(samples []stats.Sample) []stats.Sample {
	var base []stats.Sample
	for _, g := range stats.GroupBy(samples, bench.RepeatFactor) {
		repeats := stats.GroupBy(g.Samples)
		for _, s := range repeats[0].Samples {
			s.Cell = maps.Clone(s.Cell)
			delete(s.Cell, bench.RepeatFactor)
			base = append(base, s)
		}
		for _, r := range repeats[1:] {
			for _, m := range a.metrics {
				if c, ok := stats.Ratio(r.Samples, repeats[0].Samples, m); ok {
					a.kind = floorCells
					a.floor = append(a.floor, ratio{factor: bench.RepeatFactor, a: r.Cell[bench.RepeatFactor], b: repeats[0].Cell[bench.RepeatFactor], cell: g.Cell, Comparison: c})
				}
			}
		}
	}
	return base
}

// findFactors returns the factors that have several levels, sorted by name. The levels of a factor are in the order of the cells.
func findFactors(samples []stats.Sample) []factor {
	levels := map[string][]string{}
	for _, s := range samples {
		for f, l := range s.Cell {
			if !slices.Contains(levels[f], l) {
				levels[f] = append(levels[f], l)
			}
		}
	}
	var out []factor
	for _, name := range slices.Sorted(maps.Keys(levels)) {
		f := factor{name: name, levels: levels[name]}
		if len(f.levels) < 2 {
			continue
		}
		number := map[string]float64{}
		for _, l := range f.levels {
			if n, err := strconv.ParseFloat(l, 64); err == nil && n-n == 0 { // finite
				number[l] = n
			}
		}
		if len(number) == len(f.levels) {
			slices.SortFunc(f.levels, func(a, b string) int { return cmp.Compare(number[a], number[b]) })
			for _, l := range f.levels {
				f.numbers = append(f.numbers, number[l])
			}
		}
		out = append(out, f)
	}
	return out
}

// compareLevels compares each level of a factor with all earlier levels. If the levels are numbers, it compares only neighbours.
func (a *analysis) compareLevels(f factor) {
	for _, m := range a.metrics {
		for _, g := range stats.GroupBy(a.base, f.name) {
			for i := range f.levels {
				first := 0
				if f.numbers != nil {
					first = max(i-1, 0)
				}
				for k := first; k < i; k++ {
					c, ok := stats.Ratio(stats.Select(g.Samples, f.name, f.levels[i]), stats.Select(g.Samples, f.name, f.levels[k]), m)
					if ok {
						a.ratios = append(a.ratios, ratio{factor: f.name, a: f.levels[i], b: f.levels[k], cell: g.Cell, Comparison: c})
					}
				}
			}
		}
	}
}

// describe returns the unit and the description of a metric. Both are empty for a metric that is not in trial.Metrics, such as a
// metric that a player measures.
func describe(metric string) trial.Metric {
	for _, m := range trial.Metrics {
		if m.Name == metric {
			return m
		}
	}
	return trial.Metric{Name: metric}
}
