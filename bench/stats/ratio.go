package stats

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
)

// Margin is the maximum difference, as a share, between two cells whose comparison has the answer "same".
const Margin = 0.03

// Comparison is the ratio of two cells, or of the same cell in two groups of sweeps. It is the geometric mean of the ratios of the blocks.
type Comparison struct {
	Metric     string    `json:"metric"`
	Ratio      float64   `json:"ratio,omitempty"`      // absent if it is unknown; Reason then says why
	Interval   *Interval `json:"interval,omitempty"`   // of 95 %; absent with fewer than MinUnits blocks
	Blocks     int       `json:"blocks"`               // number of blocks with both cells; the number of sweeps on each side if sweeps are compared
	P          float64   `json:"p"`                    // p-value of a test that the cells are equal, corrected for the number of comparisons; 1 without an interval
	Answer     string    `json:"answer"`               // one of "more", "less", "same within ±3 %", or "unclear" with a reason
	Trials     int       `json:"trials"`               // number of trials in these blocks
	Unfinished int       `json:"unfinished,omitempty"` // number of trials in these blocks that are incomplete and have no value
	Incomplete int       `json:"incomplete,omitempty"` // number of trials in these blocks that are incomplete
	Reason     string    `json:"reason,omitempty"`     // why the ratio or the interval is unknown
	estimate   estimate
	level      float64 // the share of wrong answers of this test
	ofSweeps   bool    // see RatioOfSweeps
}

// Ratio compares a with b in the blocks that contain samples of both. It returns false if no block contains values of both. If an
// incomplete trial lacks the metric, or a value is 0 or less, the ratio is unknown, and the answer says so: without these trials, the
// others alone would favour a cell that finishes rarely.
func Ratio(a, b []Sample, metric string) (Comparison, bool) {
	a, b, blocks := pairBlocks(a, b)
	c, all := newComparison(metric, len(blocks), slices.Concat(a, b))
	if c.Reason != "" {
		return c, isMeasured(all, metric)
	}
	x, y := blockLogs(a, metric), blockLogs(b, metric)
	var logs []float64
	for _, n := range blocks {
		first, inA := x[n]
		second, inB := y[n]
		if inA && inB {
			logs = append(logs, first-second)
		}
	}
	c.Blocks = len(logs)
	c.conclude(estimateMean(logs), c.Blocks >= MinUnits, tooFewBlocks)
	return c, c.Blocks > 0
}

// newComparison returns a comparison of these samples, and the samples. It has a reason if the samples have no ratio.
func newComparison(metric string, units int, all []Sample) (Comparison, []Sample) {
	c := Comparison{Metric: metric, Blocks: units, Trials: len(all), Incomplete: CountIncomplete(all)}
	if c.Unfinished, c.Reason = findUnusable(all, metric); c.Reason != "" {
		c.judge(Level, true)
	}
	return c, all
}

// RatioOfSweeps compares a cell in two groups of sweeps. a and b have the samples of each sweep. A sweep is one observation, because all
// its trials share the state of the computer on its day: an answer needs three sweeps in each group, and otherwise there is only a ratio.
func RatioOfSweeps(a, b [][]Sample, metric string) (Comparison, bool) {
	return compareSweeps(a, b, metric, MinUnits, "a sweep is one observation, and an answer needs three on each side")
}

// compareSweeps compares a cell in two groups of sweeps. If the first group has fewer than needed sweeps, or the second one fewer than
// MinUnits, the comparison has no interval, and this reason.
func compareSweeps(a, b [][]Sample, metric string, needed int, reason string) (Comparison, bool) {
	c, all := newComparison(metric, min(len(a), len(b)), slices.Concat(slices.Concat(a...), slices.Concat(b...)))
	if c.ofSweeps = true; c.Reason != "" {
		return c, isMeasured(all, metric)
	}
	x, y := sweepLogs(a, metric), sweepLogs(b, metric)
	if len(x) == 0 || len(y) == 0 {
		return c, false
	}
	c.Blocks = min(len(x), len(y))
	c.conclude(estimateDifference(x, y), len(x) >= needed && len(y) >= MinUnits, reason)
	if c.Interval == nil {
		c.Answer = "–"
	}
	return c, true
}

// sweepLogs returns the mean logarithm of each sweep that has the metric.
func sweepLogs(sweeps [][]Sample, metric string) (out []float64) {
	for _, samples := range sweeps {
		if logs := slices.Sorted(maps.Values(blockLogs(samples, metric))); len(logs) > 0 {
			out = append(out, estimateMean(logs).mean)
		}
	}
	return out
}

// conclude sets the ratio and, if there are enough units, the interval and the answer. Otherwise the comparison has a reason.
func (c *Comparison) conclude(e estimate, enough bool, reason string) {
	c.estimate, c.P, c.Ratio = e, 1, math.Exp(e.mean)
	if enough {
		i := e.interval(Level)
		c.Interval, c.P = &i, e.p(1)
	} else {
		c.Reason = reason
	}
	c.judge(Level, true)
}

var tooFewBlocks = fmt.Sprintf("an answer needs %d blocks", MinUnits)

// Noise returns the standard deviation of the logarithm of a trial's result, without what the trials of a block share. It returns NaN if it
// is unknown.
func (c Comparison) Noise() float64 {
	if c.Interval == nil {
		return math.NaN()
	}
	return c.sd() / math.Sqrt2
}

// sd returns the standard deviation of the logarithms of the ratios of blocks.
func (c Comparison) sd() float64 { return c.estimate.se * math.Sqrt(float64(c.Blocks)) }

// Holm corrects the p-values of a family of comparisons for their number with the method of Holm and Bonferroni, and updates their answers. At
// least one of the answers is wrong with a probability of at most level.
func Holm(all []*Comparison, level float64) {
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b *Comparison) int { return cmp.Compare(a.P, b.P) })
	p := 0.0
	for i, c := range sorted {
		p = max(p, min(1, c.P*float64(len(sorted)-i)))
		c.P = p
		c.judge(level/float64(len(sorted)-i), p < level) // if p is not below level, a comparison with a smaller p has no answer
	}
}

// nothingLeft is why there is no answer if earlier looks at the sweep have spent Level.
const nothingLeft = "the sweep has more blocks than maxBlocks declares"

// judge sets the answer. level is the share of wrong answers of this test. If mayDiffer is false, the answer is not "more" or "less".
func (c *Comparison) judge(level float64, mayDiffer bool) {
	c.level = level
	if c.Interval != nil && level <= 0 {
		c.Reason = nothingLeft
	}
	if c.Interval == nil || level <= 0 {
		c.P, c.Answer = 1, "unclear: "+c.Reason
		return
	}
	switch i := c.estimate.interval(level); {
	case i.Low >= 1/(1+Margin) && i.High <= 1+Margin:
		c.Answer = fmt.Sprintf("same within ±%.0f %%", 100*Margin)
	case i.Low > 1 && mayDiffer:
		c.Answer = "more"
	case i.High < 1 && mayDiffer:
		c.Answer = "less"
	default:
		c.Answer = c.describeMore()
	}
	if c.Incomplete > 0 {
		c.Answer += " (" + describeIncomplete(c.Incomplete, c.Trials) + ")"
	}
}

// describeMore returns the text of an unclear answer, with the number of further blocks that would find a difference as large as the
// measured one, or show that it is within the margin, with a probability of 80 %.
func (c Comparison) describeMore() string {
	if c.ofSweeps {
		return "unclear: more sweeps"
	}
	distance := math.Abs(c.estimate.mean)
	needed := max(distance, math.Log(1+Margin)-distance)
	n := unitsNeeded(needed, c.sd(), c.Blocks, c.level)
	if n > maxUnits {
		return fmt.Sprintf("unclear: more than %d blocks", maxUnits)
	}
	if n -= c.Blocks; n > 1 {
		return fmt.Sprintf("unclear: about %d more blocks", n)
	}
	return "unclear: about 1 more block"
}
