package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/nixbench/nixbench/bench/stats"
)

// splitBlocks compares one half of the blocks of each cell with the other half. It is for sweeps without equal cells. Of each pair of
// blocks, one block is in each half. Each half has the earlier block of every second pair, so that a steady drift of the computer affects
// both equally.
func (a *analysis) splitBlocks() {
	for _, g := range stats.GroupBy(a.base) {
		first, second := splitHalves(g.Samples)
		for _, m := range a.metrics {
			if c, ok := stats.Ratio(second, first, m); ok {
				a.kind = floorBlocks
				a.floor = append(a.floor, ratio{factor: "blocks", a: "even", b: "odd", cell: g.Cell, Comparison: c})
			}
		}
	}
}

// splitHalves returns the samples of the blocks 1, 4, 5, 8 and so on, and the samples of the blocks 2, 3, 6, 7 and so on. Blocks without
// samples do not count. Each pair of blocks gets one block number in the result. A last block without a partner is left out.
func splitHalves(samples []stats.Sample) (first, second []stats.Sample) {
	var blocks []int
	for _, s := range samples {
		blocks = append(blocks, s.Block)
	}
	slices.Sort(blocks)
	blocks = slices.Compact(blocks)
	for _, s := range samples {
		i := slices.Index(blocks, s.Block)
		if i/2 == len(blocks)/2 {
			continue
		}
		s.Block = i / 2
		if i%4 == 0 || i%4 == 3 {
			first = append(first, s)
		} else {
			second = append(second, s)
		}
	}
	return first, second
}

// explainHalves replaces the answers of comparisons without an interval. Such an answer suggests a number of further blocks. In floor a
// block is a pair of real blocks, so the suggested number would be wrong.
func explainHalves(floor []ratio) {
	for i := range floor {
		if c := &floor[i].Comparison; c.Interval == nil && c.Unfinished == 0 {
			c.Answer = fmt.Sprintf("unclear: an interval needs %d blocks", 2*stats.MinBlocks)
		}
	}
}

// Texts about the noise floor, which is the difference between trials with equal settings.
const (
	howToRepeat = `The factor repeat = [ "1" "2" ] in the matrix of the benchmark measures each cell twice.`
	halvesText  = "No cell was measured twice in each block, so one half of the blocks of each cell is compared with the other half. This contains changes between blocks, " +
		"which comparisons of levels do not, and has fewer trials: it is more than the noise of those comparisons. "
)

// summariseFloor returns a sentence about the largest difference between trials with equal settings, or about why there is no such
// comparison.
func (a analysis) summariseFloor() string {
	worst, ok := worstRatio(a.floor, "")
	switch {
	case len(a.base) == 0:
		return ""
	case a.kind == "" || !ok:
		return "There is no noise floor: no cell has results of two blocks. " + howToRepeat
	}
	size := 100 * (math.Exp(math.Abs(math.Log(worst.Ratio))) - 1)
	if a.kind == floorBlocks {
		return fmt.Sprintf("%sThe medians of the halves differ by up to %.1f %% (%s). Differences of this size between cells can be noise. %s", halvesText, size, worst.Metric, howToRepeat)
	}
	return fmt.Sprintf("The medians of equal cells differ by up to %.1f %% (%s). Differences of this size between other cells can be noise.", size, worst.Metric)
}

// worstOfMetrics returns, for each metric, the ratio of the noise floor that is furthest from 1.
func (a analysis) worstOfMetrics() []ratio {
	var out []ratio
	for _, m := range a.metrics {
		if r, ok := worstRatio(a.floor, m); ok {
			out = append(out, r)
		}
	}
	return out
}

// worstRatio returns the ratio in floor that is furthest from 1. It examines only the ratios of metric, or all ratios if metric is empty.
// It returns false if all of these ratios are unknown.
func worstRatio(floor []ratio, metric string) (ratio, bool) {
	floor = slices.DeleteFunc(slices.Clone(floor), func(r ratio) bool { return r.Ratio == 0 || metric != "" && r.Metric != metric })
	if len(floor) == 0 {
		return ratio{}, false
	}
	return slices.MaxFunc(floor, func(a, b ratio) int { return cmp.Compare(math.Abs(math.Log(a.Ratio)), math.Abs(math.Log(b.Ratio))) }), true
}

// textNoise returns a table with the largest difference between trials with equal settings, for each metric.
func textNoise(a analysis) Table {
	t := Table{Title: "Noise", Note: a.summariseFloor(), Head: []string{"metric", "largest ratio", "95 % interval", "where", "of", "to"}}
	for _, r := range a.worstOfMetrics() {
		t.Rows = append(t.Rows, []string{r.Metric, formatRatio(r.Ratio), formatInterval(r.Interval), nameCell(r.cell), r.factor + "=" + r.a, r.factor + "=" + r.b})
	}
	return t
}
