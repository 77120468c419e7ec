package page

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/stats"
)

// Each sweep has the noise of its trials, and the difference between equal cells, or says how to measure it.
func TestNoiseTable(t *testing.T) {
	in := example(t)
	table := analyse(in).listNoise()
	if len(table.Rows) != 4 || table.Note != "" {
		t.Errorf("%+v", table)
	}
	for i, want := range []string{"throughput 0.9", "bind_rate 0.9", "wait_p50 5.", "wait_p99 5."} { // the example has 1 and 5 %
		if got := strings.Join(table.Rows[i], " "); !strings.HasPrefix(got, want) && !strings.HasPrefix(got, strings.Replace(want, "5.", "4.", 1)) || !strings.Contains(got, " % ×1.") {
			t.Errorf("%s, want %s", got, want)
		}
	}
	in.Cells = in.Cells[:len(in.Cells)-1]
	in.Trials = slices.DeleteFunc(in.Trials, func(t Trial) bool { return t.Cell[bench.RepeatFactor] == "2" })
	if note := analyse(in).listNoise().Note; note != `No cell was measured twice in each block; the factor repeat = [ "1" "2" ] does so.` {
		t.Error(note)
	}
	if rows := analyse(Input{}).listNoise().Rows; rows != nil {
		t.Errorf("a sweep without trials: %v", rows)
	}
}

// Levels of a factor are compared within each workload, and workloads are not compared with each other.
func TestWorkloadsAreNotCompared(t *testing.T) {
	in := Input{Sweep: blocks(6)}
	for block := 1; block <= 6; block++ {
		for _, scheduler := range []string{"a", "b"} {
			for _, workload := range []string{"gang", "null"} {
				in.Trials = append(in.Trials, Trial{Attempt: bench.Attempt{State: bench.Valid}, Sample: stats.Sample{
					Cell: map[string]string{"scheduler": scheduler, bench.WorkloadFactor: workload}, Block: block, Order: len(in.Trials), Metrics: map[string]float64{"throughput": float64(len(in.Trials) + 1)},
				}})
			}
		}
	}
	factors := map[string]int{}
	for _, r := range Summarise(in).Ratios {
		factors[r.Factor]++
	}
	if diff := cmp.Diff(map[string]int{"scheduler": 2}, factors); diff != "" {
		t.Error(diff)
	}
}
