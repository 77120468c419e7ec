package stats

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var near = cmpopts.EquateApprox(0, 1e-9)

// cell returns a sample per value, in blocks from 1 on.
func cell(c map[string]string, values ...float64) []Sample {
	var out []Sample
	for i, v := range values {
		out = append(out, Sample{Cell: c, Block: i + 1, Metrics: map[string]float64{"m": v}})
	}
	return out
}

// noisy returns n blocks around a centre, with lognormal noise.
func noisy(r *rand.Rand, n int, centre, noise float64, block []float64) []float64 {
	var out []float64
	for i := range n {
		out = append(out, centre*block[i]*math.Exp(noise*r.NormFloat64()))
	}
	return out
}

func TestMedian(t *testing.T) {
	got, ok := Median(cell(nil, 6, 1, 2, 5, 3, 4, 7, 8), "m")
	want := Summary{Median: 4.5, Interval: &Interval{1, 7}, Count: 8} // without both ends, it would have 93 %
	if diff := cmp.Diff(want, got, near); diff != "" || !ok {
		t.Error(ok, diff)
	}
	got, ok = Median(cell(nil, 3, 1, math.NaN()), "m")
	if diff := cmp.Diff(Summary{Median: 2, Count: 2}, got, near); diff != "" || !ok {
		t.Error(ok, diff)
	}
	if _, ok := Median(cell(nil, 3), "other"); ok {
		t.Error("a metric that no trial has has a median")
	}
}

func TestRatio(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	drift := []float64{1, 3, 0.4, 8, 2, 1.5, 5, 0.7} // what both cells of a block share
	flat := []float64{1, 1, 1, 1, 1, 1, 1, 1}
	for _, c := range []struct {
		name, answer string
		a, b         []float64
		low, high    float64 // where the ratio is
	}{
		{"twice as much", "more", noisy(r, 8, 20, 0.05, flat), noisy(r, 8, 10, 0.05, flat), 1.85, 2.15},
		{"twice as much, with a drift", "more", noisy(r, 8, 20, 0.01, drift), noisy(r, 8, 10, 0.01, drift), 1.9, 2.1},
		{"10 % less", "less", noisy(r, 8, 9, 0.01, flat), noisy(r, 8, 10, 0.01, flat), 0.88, 0.92},
		{"1 % more", "same within ±3 %", noisy(r, 8, 101, 0.005, flat), noisy(r, 8, 100, 0.005, flat), 1, 1.02},
		{"equal", "same within ±3 %", flat, flat, 1, 1},
		{"exactly twice", "more", []float64{2, 2, 2, 2, 2, 2}, []float64{1, 1, 1, 1, 1, 1}, 2, 2},
		{"too few blocks", "unclear: about 4 more blocks", []float64{2, 2}, []float64{1, 1}, 2, 2},
		{"one block is missing", "unclear: about 1 more block", []float64{2, 2, 2, 2, 2, 2}, []float64{1, 1, 1, 1, 1}, 2, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := Ratio(cell(nil, c.a...), cell(nil, c.b...), "m")
			if !ok || got.Answer != c.answer || got.Ratio < c.low || got.Ratio > c.high {
				t.Errorf("%v %+v %+v", ok, got, got.Interval)
			}
			again, _ := Ratio(cell(nil, c.a...), cell(nil, c.b...), "m")
			if diff := cmp.Diff(got, again); diff != "" {
				t.Errorf("a second computation differs: %s", diff)
			}
			if i := got.Interval; i != nil && (got.Ratio < i.Low || got.Ratio > i.High) {
				t.Errorf("the ratio %v is outside of its interval %+v", got.Ratio, i)
			}
		})
	}
	for _, c := range [][2][]Sample{
		{nil, cell(nil, 1)},
		{cell(nil, 0, 1), cell(nil, 1, 1)},
		{cell(nil, 1), {{Block: 2, Metrics: map[string]float64{"m": 1}}}},
	} {
		if got, ok := Ratio(c[0], c[1], "m"); ok {
			t.Errorf("%v has the ratio %+v", c, got)
		}
	}
}

// TestMore: four times as many blocks halve the interval.
func TestMore(t *testing.T) {
	c := Comparison{Ratio: math.Exp(0.1), Interval: &Interval{math.Exp(-0.1), math.Exp(0.3)}, Blocks: 10, P: 0.3}
	if got := c.answer(); got != "unclear: about 30 more blocks" {
		t.Errorf("got %q", got)
	}
	c = Comparison{Ratio: 1.0148, Interval: &Interval{0.01, 100}, Blocks: 10, P: 0.9}
	if got := c.answer(); got != "unclear: more than 1000 more blocks" {
		t.Errorf("got %q", got)
	}
}

// TestBootstrapMedian compares the medians of resamples with those of sorted copies.
func TestBootstrapMedian(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for n := 1; n < 12; n++ {
		values := make([]float64, n)
		for i := range values {
			values[i] = float64(r.IntN(8))
		}
		for range 50 {
			counts, resample := make([]int, n), []float64{}
			for range n {
				i := r.IntN(n)
				counts[i]++
				resample = append(resample, values[i])
			}
			if got, want := newPicker(values).median(counts), MedianOf(resample); got != want {
				t.Fatalf("the median of %v is %v, want %v", resample, got, want)
			}
		}
	}
}

// TestEqualCells: of 400 pairs of equal cells, at most 5 % differ.
func TestEqualCells(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	differ := 0
	for range 400 {
		var block []float64
		for range 6 {
			block = append(block, math.Exp(0.1*r.NormFloat64()))
		}
		c, ok := Ratio(cell(nil, noisy(r, 6, 10, 0.05, block)...), cell(nil, noisy(r, 6, 10, 0.05, block)...), "m")
		if !ok {
			t.Fatal("no ratio")
		}
		if c.Answer == "more" || c.Answer == "less" {
			differ++
		}
	}
	t.Logf("%d of 400", differ)
	if differ > 20 {
		t.Errorf("%d of 400 pairs of equal cells differ", differ)
	}
}

func TestHolm(t *testing.T) {
	var all []*Comparison
	for _, p := range []float64{0.04, 0.01, 0.03, 0.5} {
		all = append(all, &Comparison{P: p, Ratio: 2, Interval: &Interval{1.5, 2.5}, Blocks: 8})
	}
	Holm(all)
	var p []float64
	var answers []string
	for _, c := range all {
		p, answers = append(p, c.P), append(answers, strings.Fields(c.Answer)[0])
	}
	if diff := cmp.Diff([]float64{0.09, 0.04, 0.09, 0.5}, p, near); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"unclear:", "more", "unclear:", "unclear:"}, answers); diff != "" {
		t.Error(diff)
	}
}

func TestParseClaim(t *testing.T) {
	got, err := ParseClaim(` ratio( wait_p50,scheduler , "my level, quoted", default, nodes=10, load = 0.9 )<= 1.5e-1 `)
	want := Claim{
		Text: `ratio( wait_p50,scheduler , "my level, quoted", default, nodes=10, load = 0.9 )<= 1.5e-1`, Metric: "wait_p50", Factor: "scheduler",
		A: "my level, quoted", B: "default", Where: map[string]string{"nodes": "10", "load": "0.9"}, Op: "<=", Number: 0.15,
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	const form = "it has not the form ratio(METRIC, FACTOR, LEVEL, LEVEL, FACTOR=LEVEL, …) > NUMBER"
	for text, want := range map[string]string{
		``:                              form,
		`median(m) > 1`:                 form,
		`ratio(m, f, a) > 1`:            form,
		`ratio(, f, a, b) > 1`:          form,
		`ratio(m, f, a, b) = 1`:         form,
		`ratio(m, f, a, b) > one`:       `"one" is not a number`,
		`ratio(m, f, a, b) > NaN`:       `"NaN" is not a number`,
		`ratio(m, f, a, b) > 1 2`:       form,
		`ratio(m, f, "a, b) > 1`:        form,
		`ratio(m, f, a, b, f=c) > 1`:    `the factor f occurs twice`,
		`ratio(m, f, a, b, g=1, g) > 1`: form,
		`ratio(m, f, ä, b, ) > 1`:       form,
	} {
		_, err := ParseClaim(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func FuzzParseClaim(f *testing.F) {
	f.Add(`ratio(m, f, "a", b, g=1) >= 2`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseClaim(text)
		if err == nil && (c.Op == "" || math.IsNaN(c.Number)) {
			t.Errorf("%q has no operator or number: %+v", text, c)
		}
	})
}

func TestEvaluate(t *testing.T) {
	var samples []Sample
	add := func(scheduler, nodes string, values ...float64) {
		samples = append(samples, cell(map[string]string{"scheduler": scheduler, "nodes": nodes}, values...)...)
	}
	add("new", "1", 2, 2.1, 1.9, 2.05, 1.95, 2)
	add("old", "1", 1, 1, 1, 1, 1, 1)
	add("new", "10", 4, 4.1, 3.9, 4.05, 3.95, 4)
	add("old", "10", 1, 1, 1, 1, 1, 1)
	add("new", "100", 4, 4, 4)
	add("old", "100", 2, 2, 2)
	add("new", "1000", 4, 4, 4, 4, 4, 4)
	for text, want := range map[string]string{
		"ratio(m, scheduler, new, old, nodes=1) > 1.5":    "holds: nodes=1 holds",
		"ratio(m, scheduler, new, old, nodes=1) >= 2":     "unclear: nodes=1 unclear",
		"ratio(m, scheduler, new, old, nodes=10) < 3":     "does not hold: nodes=10 does not hold",
		"ratio(m, scheduler, old, new, nodes=10) <= 0.5":  "holds: nodes=10 holds",
		"ratio(m, scheduler, new, old, nodes=100) > 1":    "unclear: nodes=100 unclear", // too few blocks
		"ratio(m, scheduler, new, old) < 3":               "does not hold: nodes=1 holds, nodes=10 does not hold, nodes=100 unclear",
		"ratio(m, scheduler, new, old) > 1":               "unclear: nodes=1 holds, nodes=10 holds, nodes=100 unclear",
		"ratio(m, nodes, 10, 1, scheduler=new) > 1.99":    "unclear: scheduler=new unclear",
		"ratio(m, nodes, 10, 1) > 0.9":                    "holds: scheduler=new holds, scheduler=old holds",
		"ratio(m, scheduler, new, old, nodes=1000) > 1":   "unclear: no block has trials of both scheduler=new and scheduler=old with a m greater than 0",
		"ratio(other, scheduler, new, old, nodes=1) > 1":  "unclear: no block has trials of both scheduler=new and scheduler=old with a other greater than 0",
		"ratio(m, scheduler, new, old, region=north) > 1": "unclear: no block has trials of both scheduler=new and scheduler=old with a m greater than 0",
	} {
		c, err := ParseClaim(text)
		if err != nil {
			t.Fatal(err)
		}
		r := c.Evaluate(samples)
		var parts []string
		for _, p := range r.Parts {
			parts = append(parts, Name(p.Cell)+" "+p.Verdict)
		}
		if r.Reason != "" {
			parts = []string{r.Reason}
		}
		if got := r.Verdict + ": " + strings.Join(parts, ", "); got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}

// Incomplete trials without a value must not make the others of their cell count alone.
func TestUnfinished(t *testing.T) {
	metrics := func(m, throughput float64) map[string]float64 {
		out := map[string]float64{"throughput": throughput}
		if m > 0 {
			out["m"] = m
		}
		return out
	}
	var samples []Sample
	for block := 1; block <= 8; block++ {
		a := Sample{Cell: map[string]string{"s": "a"}, Block: block, Metrics: metrics(1, 8+0.001*float64(block))}
		if block == 3 || block > 7 {
			a.Incomplete, a.Metrics = true, metrics(0, 4)
		}
		samples = append(samples, a)
		if block < 8 { // without a partner, the last block does not count
			samples = append(samples, Sample{Cell: map[string]string{"s": "b"}, Block: block, Metrics: metrics(2, 4)})
		}
	}
	a, b := Select(samples, "s", "a"), Select(samples, "s", "b")
	got, ok := Ratio(a, b, "m")
	want := Comparison{Metric: "m", Blocks: 7, P: 1, Trials: 14, Unfinished: 1, Incomplete: 1, Answer: "unclear: 1 of 14 trials did not finish"}
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Error(ok, diff)
	}
	Holm([]*Comparison{&got})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got, ok := Ratio(a, b, "throughput"); !ok || got.Interval == nil || got.Unfinished != 0 || got.Ratio < 1.99 || got.Answer != "more (1 of 14 trials did not finish)" {
		t.Errorf("throughput: %+v", got)
	}
	if got, ok := Ratio(a, b, "other"); ok {
		t.Errorf("a metric that no trial has: %+v", got)
	}
	c, err := ParseClaim("ratio(m, s, a, b) < 0.9")
	if err != nil {
		t.Fatal(err)
	}
	if r := c.Evaluate(samples); r.Verdict != Unclear || len(r.Parts) != 1 || r.Parts[0].Reason != "1 of 14 trials did not finish" {
		t.Errorf("%+v", r)
	}
	a[0].Incomplete, a[0].Metrics = true, metrics(0, 0)
	if got, ok := Ratio(a, b, "throughput"); !ok || got.Answer != "unclear: 1 of 14 trials did not finish" {
		t.Errorf("a trial without a finished job: %+v", got)
	}
	for i := range a {
		a[i].Incomplete, a[i].Metrics = true, nil
	}
	for i := range b {
		b[i].Incomplete, b[i].Metrics = true, nil
	}
	if got, ok := Ratio(a, b, "makespan"); !ok || got.Answer != "unclear: 14 of 14 trials did not finish" {
		t.Errorf("no trial has finished: %+v", got)
	}
}

// A trial that did not finish is slower than all others, and its rate is lower.
func TestIncompleteMedian(t *testing.T) {
	for _, c := range []struct {
		metric     string
		values     []float64 // 0: did not finish
		want       float64
		incomplete int
	}{
		{"makespan", []float64{1, 2, 3}, 2, 0},
		{"makespan", []float64{1, 2, 0}, 2, 1},
		{"makespan", []float64{1, 0, 0}, math.Inf(1), 2},
		{"makespan", []float64{1, 2, 0, 0}, math.Inf(1), 2},
		{"makespan", []float64{0, 0}, math.Inf(1), 2},
		{"bind_rate", []float64{1, 2, 0}, 1, 1},
		{"bind_rate", []float64{2, 0, 0}, math.Inf(-1), 2},
	} {
		var samples []Sample
		for i, v := range c.values {
			s := Sample{Block: i, Metrics: map[string]float64{c.metric: v}}
			if v == 0 {
				s.Incomplete, s.Metrics = true, nil
			}
			samples = append(samples, s)
		}
		got, ok := Median(samples, c.metric)
		if want := (Summary{Median: c.want, Count: len(c.values), Incomplete: c.incomplete}); !ok || got != want {
			t.Errorf("%s of %v: %+v, want %+v", c.metric, c.values, got, want)
		}
	}
	if got, ok := Median([]Sample{{Metrics: map[string]float64{"m": 1}}, {Incomplete: true}}, "gang_skew_p50"); ok {
		t.Errorf("a metric that the workload does not have: %+v", got)
	}
	many := make([]Sample, 8)
	for i := range many {
		many[i] = Sample{Incomplete: i > 5}
		if i <= 5 {
			many[i].Metrics = map[string]float64{"makespan": float64(i + 1)}
		}
	}
	if got, _ := Median(many, "makespan"); got.Median != 4.5 || got.Interval == nil || !math.IsInf(got.Interval.High, 1) {
		t.Errorf("%+v %+v", got, got.Interval)
	}
}
