package page

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/stats"
)

// MainMetrics are the metrics that are drawn and compared.
var MainMetrics = []string{"throughput", "bind_rate", "makespan", "wait_p50", "wait_p99", "slowdown_p99"}

// analysis contains everything that is computed from the trials of a sweep. The page and the text summary use it.
type analysis struct {
	cells   []stats.Group     // the trials that are not invalid, grouped by cell without the factor repeat
	all     []Trial           // all trials in the order of their cells; the trials of a cell in the order of time
	same    map[string]string // the factors with one level, which names of cells leave out
	metrics []string          // names of the metrics that are drawn and compared, and that at least one trial has: the primary ones first
	factors []factor          // factors with several levels, without the factor repeat
	ratios  []Ratio           // comparisons of the levels of factors
	floor   []Ratio           // the noise floor: comparisons of equal cells, which differ only in the factor repeat
}

// factor is a factor with several levels.
type factor struct {
	name    string
	levels  []string
	numbers []float64 // values of the levels, if all of them are numbers; the levels are then sorted
}

// Kinds of comparisons. The comparison of a claim is tested alone. The primary comparisons, and the exploratory ones, are corrected for their
// number.
const (
	ofClaim     = "claim"
	primary     = "primary"
	exploratory = "exploratory"
)

func analyse(in Input) analysis {
	a := analysis{all: sortTrials(in)}
	var samples, base []stats.Sample
	for _, t := range a.all {
		if t.State != bench.Invalid {
			samples = append(samples, t.Sample)
			t.Sample.Cell = stats.Without(t.Cell, bench.RepeatFactor)
			base = append(base, t.Sample)
		}
	}
	a.cells = stats.GroupBy(base)
	a.metrics = presentMetrics(samples, in.Sweep.Benchmark.Metrics)
	a.factors = findFactors(base)
	a.same = bench.CommonLevels(stats.Map(a.cells, func(g stats.Group) map[string]string { return g.Cell }))
	for _, f := range a.factors {
		// Do not compare workloads with each other: such a difference says nothing about a scheduler. Each additional comparison
		// also makes the correction for their number stricter, so that fewer answers are clear.
		if f.name != bench.WorkloadFactor {
			a.compareLevels(f, base)
		}
	}
	a.compareRepeats(samples)
	families := map[string][]*stats.Comparison{}
	for i := range a.ratios {
		r := &a.ratios[i]
		switch {
		case r.answerOfClaim(in.Claims):
			r.Kind = ofClaim
			continue
		case slices.Contains(in.Sweep.Benchmark.Metrics, r.Metric):
			r.Kind = primary
		default:
			r.Kind = exploratory
		}
		families[r.Kind] = append(families[r.Kind], &r.Comparison)
	}
	for i := range a.floor {
		families["floor"] = append(families["floor"], &a.floor[i].Comparison)
	}
	for _, family := range families {
		stats.Holm(family, in.Sweep.Level())
	}
	return a
}

// answerOfClaim sets the answer to the verdict of the claim that is about this comparison. It returns false if there is no such claim.
func (r *Ratio) answerOfClaim(claims []stats.ClaimResult) bool {
	for _, c := range claims {
		for _, part := range c.Parts {
			if maps.Equal(part.Cell, r.Cell) && c.Claim.IsAbout(r.Metric, r.Factor, r.A, r.B, r.Cell) {
				r.Answer, r.P = fmt.Sprintf("%s (claim %s)", part.Verdict, c.Name), part.P
				return true
			}
		}
	}
	return false
}

// CountComparisons returns the number of comparisons of a metric that a sweep with these cells has.
func CountComparisons(cells []map[string]string) int {
	trials := stats.Map(cells, func(c map[string]string) Trial {
		return Trial{Sample: stats.Sample{Cell: c, Metrics: map[string]float64{MainMetrics[0]: 1}}}
	})
	return len(analyse(Input{Cells: cells, Trials: trials}).ratios)
}

func sortTrials(in Input) []Trial {
	place := func(t Trial) int {
		return slices.IndexFunc(in.Cells, func(c map[string]string) bool { return maps.Equal(c, t.Cell) })
	}
	return slices.SortedStableFunc(slices.Values(in.Trials), func(a, b Trial) int {
		return cmp.Or(place(a)-place(b), cmp.Compare(a.Order, b.Order))
	})
}

// presentMetrics returns the primary metrics, and then the other MainMetrics, that at least one sample has.
func presentMetrics(samples []stats.Sample, primary []string) []string {
	var out []string
	for _, m := range slices.Concat(primary, MainMetrics) {
		if !slices.Contains(out, m) && slices.ContainsFunc(samples, func(s stats.Sample) bool { _, have := s.Metrics[m]; return have || s.Incomplete && m == "makespan" }) {
			out = append(out, m)
		}
	}
	return out
}

// compareRepeats compares the cells that differ only in the factor repeat.
func (a *analysis) compareRepeats(samples []stats.Sample) {
	for _, g := range stats.GroupBy(samples, bench.RepeatFactor) {
		repeats := stats.GroupBy(g.Samples)
		for _, r := range repeats[1:] {
			for _, m := range a.metrics {
				if c, ok := stats.Ratio(r.Samples, repeats[0].Samples, m); ok {
					a.floor = append(a.floor, Ratio{Factor: bench.RepeatFactor, A: r.Cell[bench.RepeatFactor], B: repeats[0].Cell[bench.RepeatFactor], Cell: g.Cell, Comparison: c})
				}
			}
		}
	}
}

// findFactors returns the factors that have several levels, sorted by name. The levels of a factor are in the order of the cells.
func findFactors(samples []stats.Sample) (out []factor) {
	levels := map[string][]string{}
	for _, s := range samples {
		for f, l := range s.Cell {
			if !slices.Contains(levels[f], l) {
				levels[f] = append(levels[f], l)
			}
		}
	}
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
			f.numbers = stats.Map(f.levels, func(l string) float64 { return number[l] })
		}
		out = append(out, f)
	}
	return out
}

// compareLevels compares each level of a factor with all earlier levels. If the levels are numbers, it compares only neighbours.
func (a *analysis) compareLevels(f factor, samples []stats.Sample) {
	for _, m := range a.metrics {
		for _, g := range stats.GroupBy(samples, f.name) {
			for i := range f.levels {
				for k := range i {
					if f.numbers != nil && k < i-1 {
						continue
					}
					c, ok := stats.Ratio(stats.Select(g.Samples, f.name, f.levels[i]), stats.Select(g.Samples, f.name, f.levels[k]), m)
					if ok {
						a.ratios = append(a.ratios, Ratio{Factor: f.name, A: f.levels[i], B: f.levels[k], Cell: g.Cell, Comparison: c})
					}
				}
			}
		}
	}
}

// where returns the name of a cell without the factors that have one level. It is empty if the cell has no other factors.
func (a analysis) where(cell map[string]string) string { return bench.ShortName(cell, a.same) }

// name returns the name of a cell, or all if the cell has no factors with several levels.
func (a analysis) name(cell map[string]string) string { return cmp.Or(a.where(cell), "all") }

// noiseOf returns the standard deviation of a trial's result from one block to another, as a share, from all comparisons of a metric. It
// returns NaN if it is unknown.
func (a analysis) noiseOf(metric string) float64 {
	sum, n := 0.0, 0.0
	for _, r := range a.ratios {
		if v := r.Noise(); r.Metric == metric && !math.IsNaN(v) {
			sum, n = sum+v*v, n+1
		}
	}
	return math.Sqrt(sum / n)
}
