package page

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/stats"
	"github.com/nixbench/nixbench/bench/trial"
)

func TestCurve(t *testing.T) {
	x := scale{from: 0, to: 10, begin: left, end: right}
	var p plot
	if most := p.addCurve(series{Name: "s"}, "", []change{{3, -1}, {1, 1}, {1, 1}}, x, 4); most != 2 {
		t.Errorf("the largest value is %v", most)
	}
	if got, want := p.Curves[0].Points, "100.0,1000.0 100.0,750.0 100.0,750.0 100.0,500.0 300.0,500.0 300.0,750.0 1000.0,750.0"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var many []change
	for i := range 100 * maxSteps {
		many = append(many, change{float64(i) / (10 * maxSteps), 1})
	}
	p.addCurve(series{}, "", many, x, float64(len(many)))
	points := strings.Fields(p.Curves[1].Points)
	if len(points) != 2*maxSteps+1 || !strings.HasSuffix(points[len(points)-1], ",0.0") || !strings.HasSuffix(points[1], fmt.Sprintf(",%.1f", 1000-1000.0/maxSteps)) {
		t.Errorf("%d points: %s to %s", len(points), points[:3], points[len(points)-2:])
	}
}

// The trial with the median throughput is drawn, without invalid ones, and the cells of a workload have the same axes.
func TestTimePlots(t *testing.T) {
	in := Input{Sweep: blocks(6)}
	add := func(cell map[string]string, throughput, last float64, verdict string) {
		in.Cells = append(in.Cells, cell)
		in.Trials = append(in.Trials, Trial{
			Sample:  stats.Sample{Cell: cell, Order: len(in.Trials) + 1, Metrics: map[string]float64{"throughput": throughput}},
			Attempt: bench.Attempt{State: verdict, Result: trial.Result{CPUs: 4}},
			Spans:   []trial.Span{{Start: 1, End: 2, CPUs: 2}, {Start: 1, End: last, CPUs: 1}, {Submit: 1, Start: math.Inf(1), End: math.Inf(1), CPUs: 1}, {Start: math.Inf(1), End: 1, CPUs: 1}},
		})
	}
	fast, slow, gangs := map[string]string{"scheduler": "fast", bench.WorkloadFactor: "w"}, map[string]string{"scheduler": "slow", bench.WorkloadFactor: "w"}, map[string]string{"scheduler": "fast", bench.WorkloadFactor: "gangs"}
	for _, x := range []float64{3, 1, 2} {
		add(fast, x, 5, bench.Valid)
	}
	add(fast, 1.5, 900, bench.Invalid)
	add(slow, 1, 10, bench.Suspect)
	add(gangs, 1, 2, bench.Valid)
	workloads := drawWorkloads(analyse(in))
	if len(workloads) != 2 {
		t.Fatalf("%+v", workloads)
	}
	var got []string
	for _, w := range workloads {
		for _, p := range w.Load {
			text := fmt.Sprintf("%s of %d cells, up to %s:", p.Title, len(p.Curves), p.XTicks[len(p.XTicks)-1].Text)
			for _, row := range p.Data[1:] {
				if row[0] == p.Legend[0].Name {
					text += fmt.Sprintf(" %s at %s,", row[2], row[1])
				}
			}
			got = append(got, text)
		}
	}
	want := []string{
		"jobs that wait of 2 cells, up to 10 s: 1 at 0, 2 at 0, 3 at 0, 2 at 1, 1 at 1, 2 at 1, 1 at 1,",
		"processors in use of 2 cells, up to 10 s: 50 at 1, 75 at 1, 25 at 2, 0 at 5,",
		"jobs that wait of 1 cells, up to 2 s: 1 at 0, 2 at 0, 3 at 0, 2 at 1, 1 at 1, 2 at 1, 1 at 1,",
		"processors in use of 1 cells, up to 2 s: 50 at 1, 75 at 1, 25 at 2, 0 at 2,",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	checkXML(t, render(t, in))
	drawings, err := Drawings(in)
	if err != nil {
		t.Fatal(err)
	}
	names := slices.Sorted(maps.Keys(drawings))
	if diff := cmp.Diff([]string{
		"gangs-jobs-that-wait.svg", "gangs-processors-in-use.svg", "gangs-throughput.svg",
		"w-jobs-that-wait.svg", "w-processors-in-use.svg", "w-throughput.svg",
	}, names); diff != "" {
		t.Error(diff)
	}
	for name, data := range drawings {
		checkXML(t, string(data))
		if strings.Contains(string(data), "ZgotmplZ") || strings.Contains(string(data), "var(") {
			t.Errorf("%s: %s", name, data)
		}
	}
	if data := string(drawings["w-throughput.svg"]); !strings.Contains(data, "series,scheduler,mean,low,high,trials\nall,fast,1.8") {
		t.Error(data)
	}
}

// The summary is JSON also if trials did not finish.
func TestSummarise(t *testing.T) {
	in := example(t)
	for i := range in.Trials {
		if in.Trials[i].Cell["nodes"] == "100" {
			in.Trials[i].Incomplete = true
		}
		in.Trials[i].Metrics["makespan"] = 10
		if in.Trials[i].Incomplete {
			delete(in.Trials[i].Metrics, "makespan")
		}
	}
	data, err := json.Marshal(Summarise(in))
	if err != nil {
		t.Fatal(err)
	}
	var got Summary
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	finished, unfinished := 0, 0
	for _, m := range got.Means {
		if m.Metric == "makespan" && m.Mean == nil && m.Unfinished == m.Trials {
			unfinished++
		}
		if m.Metric == "makespan" && m.Mean != nil && math.Abs(*m.Mean-10) < 1e-9 && m.Unit == "s" {
			finished++
		}
	}
	if finished != 4 || unfinished != 2 || len(got.Ratios) == 0 || got.Ratios[0].Answer == "" || len(got.Floor) == 0 || len(got.Noise) == 0 {
		t.Errorf("%d means did finish, %d did not; %d ratios, floor %+v", finished, unfinished, len(got.Ratios), got.Floor)
	}
}
