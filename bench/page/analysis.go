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

// MainMetrics are the metrics of drawings and comparisons, unless the input has others.
var MainMetrics = []string{"throughput", "bind_rate", "makespan", "wait_p50", "wait_p99", "slowdown_p99"}

// analysis is what is computed from the trials of a sweep, for the page and for the text.
type analysis struct {
	cells   []stats.Group // all trials that count, in the order of the cells
	base    []stats.Sample
	all     []Trial  // all trials in the order of their cells; those of a cell in the order of time
	metrics []string // names of the metrics that are drawn and compared, and that at least one trial has
	factors []factor // factors with several levels, without the factor repeat
	ratios  []ratio  // comparisons of levels
	floor   []ratio  // comparisons of what is equal
	kind    string   // what floor compares: floorCells, floorBlocks, or an empty string if nothing
}

// What the noise floor compares.
const (
	floorCells  = "cells"  // the noise floor compares equal cells, which differ only in the factor repeat
	floorBlocks = "blocks" // the noise floor compares one half of the blocks of each cell with the other one
)

// factor is a factor with several levels.
type factor struct {
	name    string
	levels  []string
	numbers []float64 // values of the levels, if all of them are numbers; the levels are then sorted
}

// ratio is a comparison of two levels of a factor.
type ratio struct {
	factor string
	a, b   string // the levels; the ratio is that of a to b
	cell   map[string]string
	stats.Comparison
}

func analyse(in Input) analysis {
	a := analysis{all: sortTrials(in)}
	var samples []stats.Sample
	for _, t := range a.all {
		if t.Verdict != bench.Invalid {
			s := t.Sample
			s.Incomplete = !t.Complete
			samples = append(samples, s)
		}
	}
	a.cells = stats.GroupBy(samples)
	a.metrics = presentMetrics(in.Metrics, samples)
	a.base = a.splitRepeats(samples)
	if len(a.floor) == 0 {
		a.splitBlocks()
	}
	a.factors = findFactors(a.base)
	for _, f := range a.factors {
		// Do not compare workloads with each other: a difference says nothing about a scheduler, and would make the other
		// answers rarer.
		if f.name != bench.WorkloadFactor {
			a.compareLevels(f)
		}
	}
	correct(a.ratios)
	correct(a.floor) // the ratios of the noise floor are corrected alone; together with the others, they would make the answers about levels rarer
	if a.kind == floorBlocks {
		explainHalves(a.floor)
	}
	return a
}

// correct corrects comparisons for their number.
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

// presentMetrics returns the metrics of wanted, or the main ones, that a sample has.
func presentMetrics(wanted []string, samples []stats.Sample) []string {
	if len(wanted) == 0 {
		wanted = MainMetrics
	}
	var out []string
	for _, m := range wanted {
		if slices.ContainsFunc(samples, func(s stats.Sample) bool { _, have := s.Metrics[m]; return have || s.Incomplete && m == "makespan" }) {
			out = append(out, m)
		}
	}
	return out
}

// splitRepeats returns the samples of the first of equal cells, and compares the other ones with it.
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

// findFactors returns the factors with several levels in the order of their names, and their levels in the order of the cells.
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

// compareLevels compares each level with the earlier ones, or with the one before if the levels are numbers.
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

// describe returns the unit and the description of a metric. A metric that is not in trial.Metrics, such as one of a player,
// has neither.
func describe(metric string) trial.Metric {
	for _, m := range trial.Metrics {
		if m.Name == metric {
			return m
		}
	}
	return trial.Metric{Name: metric}
}
