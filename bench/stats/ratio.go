package stats

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/aclements/go-moremath/stats"
)

// MinBlocks is the minimum number of blocks for a confidence interval. With fewer, the true median is outside of the range of all values
// with a probability of more than 5 %.
const MinBlocks = 6

// Margin is the maximum difference, as a share, between two cells whose comparison has the answer "same".
const Margin = 0.03

// resamples is the number of resamples that a bootstrap draws.
const resamples = 10_000

// maxMore is the maximum number of further blocks that the text of an unclear answer suggests.
const maxMore = 1000

// Comparison is the ratio of the medians of two cells.
type Comparison struct {
	Metric     string    `json:"metric"`
	Ratio      float64   `json:"ratio,omitempty"`      // absent if Unfinished is not 0
	Interval   *Interval `json:"interval,omitempty"`   // absent with fewer than MinBlocks blocks
	Blocks     int       `json:"blocks"`               // number of blocks with both cells
	P          float64   `json:"p"`                    // p-value of a test that the cells are equal, corrected by Holm; 1 without an interval
	Answer     string    `json:"answer"`               // one of "more", "less", "same within ±3 %", or "unclear" with a reason
	Trials     int       `json:"trials"`               // number of trials in these blocks
	Unfinished int       `json:"unfinished,omitempty"` // number of trials in these blocks that are incomplete and have no value
	Incomplete int       `json:"incomplete,omitempty"` // number of trials in these blocks that are incomplete
}

// Ratio returns the ratio of the median of a to the median of b, in the blocks that contain samples of both. The interval is that of a
// percentile bootstrap over blocks, and is always the same for the same samples. Ratio returns false if no block contains both, or if a
// value is not above 0. If an incomplete trial lacks the metric, the ratio is unknown: the other trials alone would favour a cell that
// finishes rarely.
func Ratio(a, b []Sample, metric string) (Comparison, bool) {
	a, b, blocks := pairBlocks(a, b)
	c := Comparison{Metric: metric, Blocks: len(blocks), P: 1, Trials: len(a) + len(b), Unfinished: countUnfinished(metric, a, b), Incomplete: CountIncomplete(a, b)}
	if c.Unfinished > 0 {
		c.Answer = c.answer()
		return c, isMeasured(metric, a, b)
	}
	x, y := medians(a, b, blocks, metric)
	if len(x) == 0 || slices.Min(x) <= 0 || slices.Min(y) <= 0 {
		return Comparison{}, false
	}
	c.Ratio, c.Blocks = MedianOf(x)/MedianOf(y), len(x)
	if len(x) >= MinBlocks {
		c.Interval = bootstrap(x, y)
		c.P = compareLogs(x, y)
	}
	c.Answer = c.answer()
	return c, true
}

// pairBlocks returns the blocks that contain samples of both a and b, and the samples of a and of b in these blocks.
func pairBlocks(a, b []Sample) (inA, inB []Sample, blocks []int) {
	in := func(samples []Sample, block int) bool {
		return slices.ContainsFunc(samples, func(s Sample) bool { return s.Block == block })
	}
	for _, s := range a {
		if in(b, s.Block) {
			inA = append(inA, s)
			blocks = append(blocks, s.Block)
		}
	}
	for _, s := range b {
		if in(a, s.Block) {
			inB = append(inB, s)
		}
	}
	slices.Sort(blocks)
	return inA, inB, slices.Compact(blocks)
}

// value returns the value of a metric of a trial, and false if the trial has not measured this metric.
func (s Sample) value(metric string) (float64, bool) {
	v, have := s.Metrics[metric]
	return v, have && !math.IsNaN(v) && !math.IsInf(v, 0)
}

// countUnfinished returns the number of incomplete samples whose value cannot be compared.
func countUnfinished(metric string, cells ...[]Sample) int {
	n := 0
	for _, s := range slices.Concat(cells...) {
		if v, ok := s.value(metric); s.Incomplete && (!ok || v <= 0) {
			n++
		}
	}
	return n
}

// CountIncomplete returns the number of incomplete samples.
func CountIncomplete(cells ...[]Sample) int {
	n := 0
	for _, s := range slices.Concat(cells...) {
		if s.Incomplete {
			n++
		}
	}
	return n
}

// isMeasured reports whether these trials can have a metric: at least one sample has the metric, or no sample is complete.
func isMeasured(metric string, cells ...[]Sample) bool {
	complete := false
	for _, s := range slices.Concat(cells...) {
		if _, ok := s.value(metric); ok {
			return true
		}
		complete = complete || !s.Incomplete
	}
	return !complete
}

// medians returns, for each block in which a and b have values, the median of a (in x) and the median of b (in y).
func medians(a, b []Sample, blocks []int, metric string) (x, y []float64) {
	in := func(samples []Sample, block int) (values []float64) {
		for _, s := range samples {
			if v, ok := s.value(metric); ok && s.Block == block {
				values = append(values, v)
			}
		}
		return values
	}
	for _, n := range blocks {
		first, second := in(a, n), in(b, n)
		if len(first) > 0 && len(second) > 0 {
			x = append(x, MedianOf(first))
			y = append(y, MedianOf(second))
		}
	}
	return x, y
}

// MedianOf returns the median of values, of which there must be at least one.
func MedianOf(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// bootstrap returns the confidence interval of the ratio of the medians of x and y.
func bootstrap(x, y []float64) *Interval {
	r := rand.New(rand.NewPCG(1, 2))
	px, py := newPicker(x), newPicker(y)
	counts := make([]int, len(x))
	ratios := make([]float64, resamples)
	for i := range ratios {
		clear(counts)
		for range x {
			counts[r.IntN(len(x))]++
		}
		ratios[i] = px.median(counts) / py.median(counts)
	}
	slices.Sort(ratios)
	tail := int(math.Round(resamples * (1 - Confidence) / 2))
	return &Interval{ratios[tail], ratios[resamples-1-tail]}
}

// picker computes medians of resamples. It sorts the values once, and not each resample.
type picker struct {
	values []float64
	order  []int // indices of values, sorted by value
}

func newPicker(values []float64) picker {
	p := picker{values: values}
	for i := range values {
		p.order = append(p.order, i)
	}
	slices.SortFunc(p.order, func(i, k int) int { return cmp.Compare(values[i], values[k]) })
	return p
}

// median returns the median of a resample that contains the value i counts[i] times.
func (p picker) median(counts []int) float64 {
	low, high := (len(counts)-1)/2, len(counts)/2 // the positions of the two middle values
	var a float64
	seen := 0
	for _, i := range p.order {
		before := seen
		seen += counts[i]
		if before <= low && low < seen {
			a = p.values[i]
		}
		if high < seen {
			return (a + p.values[i]) / 2
		}
	}
	return a
}

// compareLogs returns the p-value of the paired t-test of the logarithms of x and y. A bootstrap cannot replace it: with six blocks, over
// 5 % of the bootstrap's intervals of equal cells do not contain 1, and a bootstrap gives no small p-values that Holm could correct.
func compareLogs(x, y []float64) float64 {
	a, b := make([]float64, len(x)), make([]float64, len(x))
	for i := range x {
		a[i], b[i] = math.Log(x[i]), math.Log(y[i])
	}
	t, err := stats.PairedTTest(a, b, 0, stats.LocationDiffers)
	switch {
	case errors.Is(err, stats.ErrZeroVariance) && a[0] != b[0]:
		return 0 // the same ratio in all blocks
	case err != nil:
		return 1
	}
	return t.P
}

// Holm applies the Holm-Bonferroni correction for several tests to the p-values of all comparisons of a page, and updates their answers.
func Holm(all []*Comparison) {
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b *Comparison) int { return cmp.Compare(a.P, b.P) })
	p := 0.0
	for i, c := range sorted {
		p = max(p, min(1, c.P*float64(len(sorted)-i)))
		c.P = p
		c.Answer = c.answer()
	}
}

// answer returns the result of compare, and how many trials did not finish.
func (c Comparison) answer() string {
	switch {
	case c.Unfinished > 0:
		return fmt.Sprintf("unclear: %d of %d trials did not finish", c.Unfinished, c.Trials)
	case c.Incomplete > 0:
		return fmt.Sprintf("%s (%d of %d trials did not finish)", c.compare(), c.Incomplete, c.Trials)
	}
	return c.compare()
}

// compare returns the result of the comparison in words: more, less, same or unclear.
func (c Comparison) compare() string {
	if c.Interval == nil {
		return describeMore(MinBlocks - c.Blocks)
	}
	i := *c.Interval
	switch {
	case i.Low >= 1-Margin && i.High <= 1+Margin:
		return fmt.Sprintf("same within ±%.0f %%", 100*Margin)
	case c.P < 1-Confidence && i.Low > 1:
		return "more"
	case c.P < 1-Confidence && i.High < 1:
		return "less"
	}
	return describeMore(c.more())
}

// more returns an estimate of how many further blocks would give a clear answer. It assumes that the width of an interval shrinks
// with the square root of the number of blocks.
func (c Comparison) more() int {
	half := math.Log(c.Interval.High/c.Interval.Low) / 2
	distance := math.Abs(math.Log(c.Ratio))
	needed := max(distance, math.Log(1+Margin)-distance) // the half width that excludes 1, or that is within the margin
	blocks := float64(c.Blocks) * (half / needed) * (half / needed)
	return int(math.Ceil(min(blocks-float64(c.Blocks), maxMore+1)))
}

func describeMore(n int) string {
	switch {
	case n > maxMore:
		return fmt.Sprintf("unclear: more than %d more blocks", maxMore)
	case n <= 1:
		return "unclear: about 1 more block"
	}
	return fmt.Sprintf("unclear: about %d more blocks", n)
}
