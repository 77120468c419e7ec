package page

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/stats"
)

// halves returns a sweep without repeats, whose cells all have the same results.
func halves(blocks, cells int, noise float64) Input {
	r := rand.New(rand.NewPCG(1, 1))
	var in Input
	for i := range cells {
		in.Cells = append(in.Cells, map[string]string{"s": fmt.Sprint(i)})
	}
	for block := 1; block <= blocks; block++ {
		metrics := map[string]float64{"throughput": math.Exp(noise * r.NormFloat64())}
		for _, c := range in.Cells {
			in.Trials = append(in.Trials, Trial{Sample: stats.Sample{Cell: c, Block: block, Order: block, Metrics: metrics}, Verdict: bench.Valid})
		}
	}
	return in
}

// Halves begin pairs of blocks in turns, and a block without a partner is left out.
func TestSplitHalves(t *testing.T) {
	describe := func(samples []stats.Sample) string {
		var out []string
		for _, s := range samples {
			out = append(out, fmt.Sprintf("%d:%.0f", s.Block, s.Metrics["n"]))
		}
		return strings.Join(out, " ")
	}
	var samples []stats.Sample
	for _, block := range []int{1, 2, 4, 5, 6, 7, 9} { // the results of 3 and 8 do not count
		samples = append(samples, stats.Sample{Block: block, Metrics: map[string]float64{"n": float64(block)}})
	}
	first, second := splitHalves(samples)
	if a, b := describe(first), describe(second); a != "0:1 1:5 2:6" || b != "0:2 1:4 2:7" {
		t.Errorf("%s | %s", a, b)
	}
}

// Each sweep has a noise floor, or says why it has none and how to get one.
func TestFloorText(t *testing.T) {
	for name, test := range map[string]struct {
		in   Input
		kind string
		want []string
	}{
		"equal cells": {example(t), floorCells, []string{"The medians of equal cells differ by up to 0.9 %"}},
		"halves":      {halves(6, 1, 0.1), floorBlocks, []string{halvesText, "The medians of the halves differ by up to", howToRepeat, "an interval needs 12 blocks"}},
		"one block":   {halves(1, 1, 0.1), "", []string{"There is no noise floor: no cell has results of two blocks.", howToRepeat}},
	} {
		page := render(t, test.in)
		for _, want := range test.want {
			if want = strings.ReplaceAll(want, `"`, "&#34;"); !strings.Contains(page, want) {
				t.Errorf("%s: the page does not contain %s", name, want)
			}
		}
		s := Summarise(test.in)
		if s.Floor.Of != test.kind || s.Floor.Text == "" || (test.kind == "") != (len(s.Floor.Ratios) == 0) {
			t.Errorf("%s: %+v", name, s.Floor)
		}
		found := false
		for _, table := range Text(test.in) {
			found = found || table.Title == "Noise" && table.Note == s.Floor.Text
		}
		if !found {
			t.Errorf("%s: the text has no noise floor", name)
		}
	}
}

// The comparisons of the noise floor are corrected for their number, and not those of levels for them.
func TestFloorCorrection(t *testing.T) {
	one, many := analyse(halves(24, 1, 0.1)), analyse(halves(24, 20, 0.1))
	if one.floor[0].P >= 1 || many.floor[0].P < min(1, 2*one.floor[0].P) {
		t.Errorf("p is %v alone, and %v among 20 comparisons", one.floor[0].P, many.floor[0].P)
	}
	in := example(t)
	without := example(t)
	without.Cells = without.Cells[:len(without.Cells)-1]
	without.Trials = without.Trials[:0]
	for _, trial := range in.Trials {
		if trial.Cell[bench.RepeatFactor] == "1" {
			without.Trials = append(without.Trials, trial)
		}
	}
	if diff := cmp.Diff(Summarise(without).Ratios, Summarise(in).Ratios); diff != "" {
		t.Errorf("the noise floor changes the answers about levels: %s", diff)
	}
}

// Levels of a factor are compared within each workload, and workloads are not compared with each other.
func TestWorkloadsAreNotCompared(t *testing.T) {
	in := Input{}
	for block := 1; block <= 6; block++ {
		for _, scheduler := range []string{"a", "b"} {
			for _, workload := range []string{"gang", "null"} {
				in.Trials = append(in.Trials, Trial{Verdict: bench.Valid, Sample: stats.Sample{
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
