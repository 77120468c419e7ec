package page

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/noise"
	"github.com/nixbench/nixbench/bench/stats"
	"github.com/nixbench/nixbench/bench/trial"
)

func TestSteps(t *testing.T) {
	x := func(v float64) float64 { return 100 * v }
	if got, want := steps([]float64{1, 1, 3}, 4, x), "100.0,1000.0 100.0,750.0 100.0,750.0 100.0,500.0 300.0,500.0 300.0,250.0 1000.0,250.0"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var many []float64
	for i := range 100 * maxSteps {
		many = append(many, float64(i))
	}
	points := strings.Fields(steps(many, float64(len(many)), func(v float64) float64 { return v }))
	if len(points) != 2*maxSteps+1 || !strings.HasSuffix(points[len(points)-1], ",0.0") || !strings.HasSuffix(points[1], fmt.Sprintf(",%.1f", 1000-1000.0/maxSteps)) {
		t.Errorf("%d points: %s to %s", len(points), points[:3], points[len(points)-2:])
	}
}

func TestDecades(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		want      string
	}{
		{0.003, 12, "0.01 s middle, 0.1 s middle, 1 s middle, 10 s middle"}, {1, 1, "1 s start, 2 s end"}, {0.3, 0.4, "0.2 s start, 0.5 s end"},
		{3, 40, "2 s start, 10 s middle, 50 s end"}, {1, 1000, "1 s start, 10 s middle, 100 s middle, 1000 s end"}, {1e-6, 1e7, ""},
	} {
		s, ticks := decades(c.low, c.high, 0, 100)
		var got []string
		for _, tick := range ticks {
			got = append(got, tick.Text+" "+tick.Anchor)
		}
		if text := strings.Join(got, ", "); c.want != "" && text != c.want || s.from > c.low || s.to < c.high || len(got) > 7 {
			t.Errorf("from %v to %v: %s, want %s", c.low, c.high, text, c.want)
		}
	}
}

// The trial with the median throughput is drawn, without invalid ones, and the cells of a workload have the same axes.
func TestProgress(t *testing.T) {
	in := Input{}
	add := func(cell map[string]string, throughput, last float64, verdict string) {
		in.Cells = append(in.Cells, cell)
		in.Trials = append(in.Trials, Trial{
			Sample:  stats.Sample{Cell: cell, Order: len(in.Trials) + 1, Metrics: map[string]float64{"throughput": throughput}},
			Verdict: verdict,
			Times:   &trial.Times{Jobs: 4, Created: []float64{0, 0, 0, 0}, Bound: []float64{1, 1, last}, Finished: []float64{last}, Wait: []float64{0, 1, last}},
		})
	}
	fast, slow, gangs := map[string]string{"s": "fast", bench.WorkloadFactor: "w"}, map[string]string{"s": "slow", bench.WorkloadFactor: "w"}, map[string]string{"s": "fast", bench.WorkloadFactor: "gangs"}
	for _, x := range []float64{3, 1, 2} {
		add(fast, x, 5, bench.Valid)
	}
	add(fast, 1.5, 900, bench.Invalid)
	add(slow, 1, 10, bench.Suspect)
	add(gangs, 1, 2, bench.Valid)
	plots := analyse(in).plotProgress()
	var got []string
	for _, p := range plots {
		got = append(got, fmt.Sprintf("%s, %s, up to %s", p.Title, p.Unit, p.XTicks[len(p.XTicks)-1].Text))
		if len(p.Curves) != 3 || !strings.HasPrefix(p.Curves[1].Title, "bound: 3 of 4 jobs, the last after ") {
			t.Errorf("%+v", p.Curves)
		}
	}
	want := []string{
		"s=fast, workload=w, jobs, trial 3 in block 0, up to 10 s", "s=slow, workload=w, jobs, trial 5 in block 0, up to 10 s",
		"s=fast, workload=gangs, jobs, trial 6 in block 0, up to 2 s",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// 9 of 12 jobs have a wait: the curve of the cell ends at 75 %.
	a := analyse(in)
	waits := a.plotDistribution("wait", distributions[0].of, makeSeries([]string{nameCell(fast)}))
	if len(waits) != 2 || waits[0].Title != "wait, workload=w" || len(waits[0].Curves) != 2 || !strings.HasSuffix(waits[0].Curves[0].Points, " 1000.0,250.0") ||
		!strings.HasPrefix(waits[0].Curves[0].Title, "s=fast, workload=w: 9 of 12 jobs") {
		t.Errorf("%+v", waits)
	}
	if p := a.plotDistribution("schedule", distributions[1].of, nil); p != nil {
		t.Errorf("a time that no job has is drawn: %+v", p)
	}
	checkXML(t, render(t, in))
}

// The figures of noise are drawn with the limits, and each trial that is not valid has its reason.
func TestNoise(t *testing.T) {
	page := render(t, example(t))
	for _, want := range []string{
		`aria-label="foreign by number of the trial"`, `<circle class="v-invalid"`, `: foreign 90.0 %, invalid</title></circle>`, `class="line limit"`,
		`<td>90.0 %</td>`, `<td>suspect</td><td>the clock of worker-3 was 40 ms late</td>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not contain %s", want)
		}
	}
	if points := len(regexp.MustCompile(`<circle class="v-`).FindAllString(page, -1)); points != 4*len(example(t).Trials) {
		t.Errorf("%d points", points)
	}
	in := example(t)
	in.Quiet = noise.Thresholds{Steal: -1}
	for i := range in.Trials {
		in.Trials[i].Noise = noise.Report{Steal: new(0.5)}
	}
	if page := render(t, in); strings.Contains(page, `class="line limit"`) || strings.Contains(page, `aria-label="psi`) {
		t.Error("the page has limits or figures that do not exist")
	}
	for i := range in.Trials {
		in.Trials[i].Noise = noise.Report{}
	}
	if page := render(t, in); !strings.Contains(page, "The figures of noise were not recorded.") {
		t.Error("the page does not say that there are no figures")
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
	for _, m := range got.Medians {
		if m.Metric == "makespan" && m.Median == nil && m.Unfinished == m.Trials {
			unfinished++
		}
		if m.Metric == "makespan" && m.Median != nil && *m.Median == 10 && m.Unit == "s" {
			finished++
		}
	}
	if finished != 5 || unfinished != 2 || len(got.Ratios) == 0 || got.Ratios[0].Answer == "" || len(got.Floor.Ratios) == 0 {
		t.Errorf("%d medians did finish, %d did not; %d ratios, floor %+v", finished, unfinished, len(got.Ratios), got.Floor)
	}
}
