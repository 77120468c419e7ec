package results

import (
	"cmp"
	"fmt"
	"math"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/page"
	"github.com/nixbench/nixbench/bench/stats"
	"github.com/nixbench/nixbench/deploy/event"
)

// Design is what the comparisons of a benchmark can see.
type Design struct {
	Blocks      int      `json:"blocks"`
	Comparisons int      `json:"comparisons"` // of the primary metrics, or of all main metrics if the benchmark names none
	Noise       float64  `json:"noise"`       // the assumed standard deviation of the results of a trial, as a share
	Ratio       *float64 `json:"ratio"`       // found with a probability of 80 %; null: there are too few blocks
}

// NewDesign returns what the comparisons of a benchmark can see if the results of trials have this noise.
func NewDesign(b bench.Benchmark, noise float64) Design {
	metrics := cmp.Or(len(b.Metrics), len(page.MainMetrics))
	d := Design{Blocks: b.Repetitions, Comparisons: metrics * page.CountComparisons(b.Cells), Noise: noise}
	if ratio := stats.Detectable(noise, d.Blocks, d.Comparisons); !math.IsInf(ratio, 0) {
		d.Ratio = &ratio
	}
	return d
}

func (d Design) String() string {
	switch {
	case d.Comparisons == 0:
		return "there is nothing to compare: no factor has several levels"
	case d.Ratio == nil:
		return fmt.Sprintf("comparisons have no answers: they need %d blocks", stats.MinUnits)
	}
	return fmt.Sprintf("if the noise of a trial is %.2g %%, %s with %s can see a ratio of %.3g",
		100*d.Noise, event.Count(d.Comparisons, "comparison"), event.Count(d.Blocks, "block"), *d.Ratio)
}
