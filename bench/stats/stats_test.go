package stats

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

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

func TestMean(t *testing.T) {
	for name, c := range map[string]struct {
		samples []Sample
		want    string
	}{
		"geometric":        {cell(nil, 1, 10, 100), "10 of 3, interval true, reason "},
		"two in a block":   {append(cell(nil, 1, 10, 100), cell(nil, 4)...), "12.6 of 4, interval true, reason "},
		"too few":          {cell(nil, 3, math.NaN()), "3 of 1, interval false, reason an answer needs 3 blocks"},
		"zero":             {cell(nil, 1, 0, 3, 4), "2 of 4, interval false, reason the value of 1 of 4 trials is 0 or less"},
		"did not finish":   {append(cell(nil, 1, 2), Sample{Incomplete: true}), "none of 3, interval false, reason 1 of 3 trials did not finish"},
		"no rate":          {[]Sample{{Incomplete: true}}, "none of 1, interval false, reason 1 of 1 trials did not finish"},
		"finishes nothing": {[]Sample{{Incomplete: true, Metrics: map[string]float64{"m": 0}}}, "none of 1, interval false, reason 1 of 1 trials did not finish"},
	} {
		s, ok := Mean(c.samples, "m")
		mean := "none"
		if s.Mean != nil {
			mean = fmt.Sprintf("%.3g", *s.Mean)
		}
		if got := fmt.Sprintf("%s of %d, interval %v, reason %s", mean, s.Trials, s.Interval != nil, s.Reason); got != c.want || !ok {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if s, ok := Mean(append(cell(nil, 3), Sample{Incomplete: true}), "other"); ok {
		t.Errorf("a metric that no trial has: %+v", s)
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
		{"exactly twice", "more", []float64{2, 2, 2}, []float64{1, 1, 1}, 2, 2},
		{"too few blocks", "unclear: an answer needs 3 blocks", []float64{2, 2}, []float64{1, 1}, 2, 2},
		{"one block is missing", "unclear: an answer needs 3 blocks", []float64{2, 2, 2}, []float64{1, 1}, 2, 2},
		{"one value is 0", "unclear: the value of 1 of 8 trials is 0 or less", []float64{2, 2, 2, 2}, []float64{1, 1, 0, 1}, 0, 0},
	} {
		got, ok := Ratio(cell(nil, c.a...), cell(nil, c.b...), "m")
		if !ok || got.Answer != c.answer || got.Ratio < c.low-1e-9 || got.Ratio > c.high+1e-9 {
			t.Errorf("%s: %v %+v %+v", c.name, ok, got, got.Interval)
		}
	}
	for _, c := range [][2][]Sample{{nil, cell(nil, 1)}, {cell(nil, 1), {{Block: 2, Metrics: map[string]float64{"m": 1}}}}} {
		if got, ok := Ratio(c[0], c[1], "m"); ok {
			t.Errorf("%v has the ratio %+v", c, got)
		}
	}
}

// isAnswer reports whether a comparison found a difference.
func isAnswer(c Comparison) bool {
	return strings.HasPrefix(c.Answer, "more") || strings.HasPrefix(c.Answer, "less")
}

// share returns in how many percent of n simulations f returns true.
func share(n int, f func() bool) float64 {
	count := 0
	for range n {
		if f() {
			count++
		}
	}
	return 100 * float64(count) / float64(n)
}

// requireShare fails if a simulated share is not within the limits. All shares are in percent.
func requireShare(t *testing.T, what string, got, low, high float64) {
	t.Helper()
	t.Logf("%s: %.1f %%", what, got)
	if got < low || got > high {
		t.Errorf("%s: %.1f %%, want %.1f to %.1f %%", what, got, low, high)
	}
}

var flat = slices.Repeat([]float64{1}, 1000)

// A system that is measured twice, on different days: two sweeps give no answer, and three sweeps on each side at most the nominal number of
// wrong ones. A comparison of the blocks of two sweeps gave 20, 54 and 78 % of wrong answers.
func TestDays(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, day := range []float64{0, 0.01, 0.02, 0.05} {
		sweeps := func(n int) (out [][]Sample) {
			for range n {
				out = append(out, cell(nil, noisy(r, 6, math.Exp(day*r.NormFloat64()), 0.01, flat)...))
			}
			return out
		}
		if c, ok := RatioOfSweeps(sweeps(1), sweeps(1), "m"); !ok || c.Interval != nil || c.Answer != "–" || c.Ratio == 0 || !strings.HasPrefix(c.Reason, "a sweep is one observation") {
			t.Errorf("two sweeps: %+v", c)
		}
		for _, n := range []int{3, 6} {
			wrong := share(2000, func() bool { c, _ := RatioOfSweeps(sweeps(n), sweeps(n), "m"); return isAnswer(c) })
			requireShare(t, fmt.Sprintf("effect of the day %.0f %%, %d sweeps on each side, wrong answers", 100*day, n), wrong, 0, 6.5)
		}
		found := share(300, func() bool {
			a := sweeps(6)
			for _, s := range a {
				for i := range s {
					s[i].Metrics["m"] *= 1.5
				}
			}
			c, _ := RatioOfSweeps(a, sweeps(6), "m")
			return isAnswer(c)
		})
		requireShare(t, "a difference of 50 % is found", found, 99, 100)
	}
}

// hodgesLehmann returns the interval of Hodges and Lehmann: of the means of all pairs of values, without as many of the smallest and of the
// largest as the exact distribution of the signed rank statistic allows.
func hodgesLehmann(values []float64) (low, high float64) {
	var means []float64
	for i := range values {
		for k := range i + 1 {
			means = append(means, (values[i]+values[k])/2)
		}
	}
	slices.Sort(means)
	counts := []float64{1} // by the sum of the positive ranks
	for rank := range values {
		next := make([]float64, len(counts)+rank+1)
		for sum, n := range counts {
			next[sum] += n
			next[sum+rank+1] += n
		}
		counts = next
	}
	cut, tail := 0, counts[0]/math.Pow(2, float64(len(values)))
	for tail <= Level/2 {
		cut++
		tail += counts[cut] / math.Pow(2, float64(len(values)))
	}
	cut = max(cut-1, 0)
	return means[cut], means[len(means)-1-cut]
}

// The interval of the t-test contains the true ratio as often as it says with all kinds of noise, and so does that of Hodges and Lehmann. With six
// blocks, only the t-test has an answer after a correction for thirty comparisons. More blocks make the interval narrower: the earlier one, of
// the ratio of medians, was 0.061 wide with 6 blocks and 0.048 with 20.
func TestInference(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	noises := map[string]func() float64{
		"normal":     func() float64 { return 0.02 * r.NormFloat64() },
		"heavy":      func() float64 { return 0.02 * r.NormFloat64() / math.Sqrt((r.ExpFloat64()+r.ExpFloat64())/2) }, // four degrees of freedom
		"skewed":     func() float64 { return 0.02 * r.ExpFloat64() },
		"disturbed":  func() float64 { return 0.02 * r.NormFloat64() * math.Pow(10, math.Floor(r.Float64()+0.05)) }, // ten times the noise in 5 %
		"occasional": func() float64 { return 0.02*r.NormFloat64() + 0.2*math.Floor(r.Float64()+0.1) },              // 20 % more in 10 %
	}
	for _, name := range slices.Sorted(maps.Keys(noises)) {
		for _, n := range []int{3, 6, 10, 20} {
			covers, rank, width, rankWidth := 0.0, 0.0, 0.0, 0.0
			const runs = 1500
			for range runs {
				logs := make([]float64, n)
				for i := range logs {
					logs[i] = noises[name]() - noises[name]()
				}
				i := estimateMean(logs).interval(Level)
				if i.Low <= 1 && 1 <= i.High {
					covers++
				}
				width += (i.High - i.Low) / runs
				low, high := hodgesLehmann(logs)
				if low <= 0 && 0 <= high {
					rank++
				}
				rankWidth += (math.Exp(high) - math.Exp(low)) / runs
			}
			t.Logf("%s noise, %d blocks: t-test %.1f %%, width %.3f; Hodges-Lehmann %.1f %%, width %.3f", name, n, 100*covers/runs, width, 100*rank/runs, rankWidth)
			if covers < 0.935*runs {
				t.Errorf("%s noise, %d blocks: the interval contains the ratio in %.1f %%", name, n, 100*covers/runs)
			}
			if name == "normal" && (n == 6 && (width < 0.05 || width > 0.065) || n == 20 && (width < 0.023 || width > 0.03)) {
				t.Errorf("%d blocks: the interval is %.3f wide", n, width)
			}
		}
	}
	if smallest := math.Pow(0.5, 5); smallest < Level/30 {
		t.Errorf("the smallest p-value of a signed rank test with six blocks is %v", smallest)
	}
	found := share(500, func() bool {
		c, _ := Ratio(cell(nil, noisy(r, 6, 20, 0.02, flat)...), cell(nil, noisy(r, 6, 10, 0.02, flat)...), "m")
		return c.P < Level/30
	})
	requireShare(t, "twice as much is found among thirty comparisons", found, 99, 100)
}

// family returns the comparisons of n pairs of cells whose true ratio is given.
func family(r *rand.Rand, n, blocks int, ratio, noise float64) (all []*Comparison) {
	for range n {
		c, _ := Ratio(cell(nil, noisy(r, blocks, ratio, noise, flat)...), cell(nil, noisy(r, blocks, 1, noise, flat)...), "m")
		all = append(all, &c)
	}
	return all
}

// Of the families of equal cells, at most 5 % have an answer, whatever their size.
func TestEqualCells(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, n := range []int{1, 10, 30} {
		wrong := share(400, func() bool {
			all := family(r, n, 6, 1, 0.05)
			Holm(all, Level)
			return slices.ContainsFunc(all, func(c *Comparison) bool { return isAnswer(*c) })
		})
		requireShare(t, fmt.Sprintf("%d comparisons of equal cells, wrong answers", n), wrong, 0, 7)
	}
}

func TestHolm(t *testing.T) {
	var all []*Comparison
	for _, p := range []float64{0.04, 0.01, 0.03, 0.5} {
		e := estimate{mean: 1, se: 1 / quantile(1-p/2, 7), df: 7} // its p-value is p
		c := &Comparison{Blocks: 8}
		c.conclude(e, true, "")
		all = append(all, c)
	}
	Holm(all, Level)
	var p []float64
	var answers []string
	for _, c := range all {
		p, answers = append(p, c.P), append(answers, strings.Fields(c.Answer)[0])
	}
	if diff := cmp.Diff([]float64{0.09, 0.04, 0.09, 0.5}, p, cmpopts.EquateApprox(0, 1e-6)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"unclear:", "more", "unclear:", "unclear:"}, answers); diff != "" {
		t.Error(diff)
	}
}

// With the suggested number of blocks, a difference is found in 80 %, and so is the ratio that a plan says.
func TestPower(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	for _, c := range []struct {
		ratio, noise float64
		comparisons  int
	}{{1.05, 0.05, 1}, {1.05, 0.05, 30}, {1.2, 0.05, 30}} {
		n := unitsNeeded(math.Log(c.ratio), c.noise*math.Sqrt2, 3, Level/float64(c.comparisons))
		find := func(ratio float64) float64 {
			return share(1000, func() bool { return family(r, 1, n, ratio, c.noise)[0].P < Level/float64(c.comparisons) })
		}
		requireShare(t, fmt.Sprintf("ratio %v among %d comparisons, with %d blocks", c.ratio, c.comparisons, n), find(c.ratio), 74, 93)
		requireShare(t, fmt.Sprintf("the ratio that %d blocks can see", n), find(Detectable(c.noise, n, c.comparisons)), 74, 86)
	}
	if n := unitsNeeded(1e-9, 1, 10, Level); n <= maxUnits {
		t.Errorf("%d blocks find a ratio of 1", n)
	}
	if c := family(r, 1, 10, 1.1, 0.3)[0]; !strings.HasPrefix(c.Answer, "unclear: about ") && !strings.HasPrefix(c.Answer, "unclear: more than") {
		t.Errorf("%+v", c)
	}
}

// A sweep of equal cells is extended until it has an answer: the looks together give at most 5 % of wrong ones, and without a
// correction more.
func TestSpend(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	looks := []int{6, 9, 12, 15, 18}
	run := func(level func(i int) float64) float64 {
		return share(1500, func() bool {
			a, b := cell(nil, noisy(r, 18, 1, 0.05, flat)...), cell(nil, noisy(r, 18, 1, 0.05, flat)...)
			for i, n := range looks {
				if c, _ := Ratio(a[:n], b[:n], "m"); c.P < level(i) {
					return true
				}
			}
			return false
		})
	}
	requireShare(t, "five looks without a correction, wrong answers", run(func(int) float64 { return Level }), 8, 20)
	requireShare(t, "five looks that spend the level, wrong answers", run(func(i int) float64 { return Spend(looks[i], 18, looks[:i]) }), 0, 6)
	total := 0.0
	for i := range looks {
		total += Spend(looks[i], 18, looks[:i])
	}
	if math.Abs(total-Level) > 1e-12 || Spend(6, 6, nil) != Level || Spend(19, 18, looks) != 0 || Spend(12, 18, []int{6, 12}) != Spend(12, 18, []int{6}) {
		t.Errorf("the looks spend %v", total)
	}
}

// parts returns the samples of n pairs of cells of the levels a and b.
func parts(r *rand.Rand, n int, ratio, noise float64) (out []Sample) {
	for i := range n {
		for level, centre := range map[string]float64{"a": ratio, "b": 1} {
			out = append(out, cell(map[string]string{"f": level, "p": fmt.Sprint(i)}, noisy(r, 6, centre, noise, flat)...)...)
		}
	}
	return out
}

// A true claim is refuted, and a wrong claim holds, in at most 5 %, with any number of parts: with eight parts, a true claim was refuted in
// 15 %. A claim that holds never stands beside an unclear row for the same ratio: that was so for four of five claims.
func TestClaimErrors(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 42))
	for _, n := range []int{1, 8} {
		for _, op := range []string{">=", "<="} {
			c := Claim{Metric: "m", Factor: "f", A: "a", B: "b", Op: op, Value: 1.2}
			verdict := func(ratio float64) string { return c.Evaluate("c", parts(r, n, ratio, 0.03), nil, Level).Verdict }
			requireShare(t, fmt.Sprintf("true claim with %d parts and %s, refuted", n, op), share(1000, func() bool { return verdict(1.2) == Refuted }), 0, 5)
			requireShare(t, fmt.Sprintf("wrong claim with %d parts and %s, holds", n, op), share(1000, func() bool { return verdict(1.2) == Holds }), 0, 5)
			right, wrong := 1.5, 1.0
			if op == "<=" {
				right, wrong = wrong, right
			}
			requireShare(t, "a clearly true claim holds", share(300, func() bool { return verdict(right) == Holds }), 95, 100)
			requireShare(t, "a clearly wrong claim is refuted", share(300, func() bool { return verdict(wrong) == Refuted }), 95, 100)
		}
	}
	beside, held := 0, 0
	for range 500 {
		samples := parts(r, 1, 1.04, 0.02)
		claim := Claim{Metric: "m", Factor: "f", A: "a", B: "b", Op: ">", Value: 1}.Evaluate("c", samples, nil, Level)
		row, _ := Ratio(Select(samples, "f", "a"), Select(samples, "f", "b"), "m")
		if claim.Verdict == Holds {
			held++
			if row.Answer != "more" && !strings.HasPrefix(row.Answer, "same") || claim.Parts[0].P != row.P || claim.Parts[0].Value != row.Ratio || *claim.Parts[0].Interval != *row.Interval {
				beside++
			}
		}
	}
	t.Logf("%d claims hold, %d beside another answer", held, beside)
	if held < 100 || beside > 0 {
		t.Error("the answers of claims and of rows differ")
	}
}

// A baseline is compared sweep by sweep: its days are part of the noise.
func TestBaseline(t *testing.T) {
	r := rand.New(rand.NewPCG(51, 52))
	c := Claim{Metric: "m", Baseline: []string{"x", "y", "z"}, Op: ">=", Value: 0.9}
	at := map[string]string{"s": "slurm"}
	day := func(centre float64) []Sample {
		return cell(at, noisy(r, 6, centre*math.Exp(0.02*r.NormFloat64()), 0.01, flat)...)
	}
	evaluate := func(centre float64, n int) ClaimResult {
		var baselines [][]Sample
		for range n {
			baselines = append(baselines, append(day(1), cell(map[string]string{"s": "other"}, 100, 100)...))
		}
		return c.Evaluate("c", day(centre), baselines, Level)
	}
	requireShare(t, "90 % of a baseline of 3, refuted or held", share(1000, func() bool { return evaluate(0.9, 3).Verdict != Unclear }), 0, 6.5)
	requireShare(t, "half of a baseline of 6, refuted", share(200, func() bool { return evaluate(0.5, 6).Verdict == Refuted }), 99, 100)
	requireShare(t, "the same as a baseline of 6, holds", share(200, func() bool { return evaluate(1, 6).Verdict == Holds }), 85, 100)
	if one := evaluate(0.5, 1); one.Verdict != Unclear || one.Parts[0].Reason != "a sweep is one observation, and the baseline needs 3" || math.Abs(one.Parts[0].Value-0.5) > 0.1 {
		t.Errorf("one sweep: %+v", one)
	}
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
	add("new", "100", 4, 4)
	add("old", "100", 2, 2)
	add("new", "1000", 4, 4, 4, 4, 4, 4)
	add("zero", "1", 4, 4, 0)
	at := func(levels ...string) map[string][]string { return map[string][]string{"nodes": levels} }
	newToOld := func(op string, value float64, nodes ...string) Claim {
		c := Claim{Metric: "m", Factor: "scheduler", A: "new", B: "old", Op: op, Value: value}
		if nodes != nil {
			c.Where = at(nodes...)
		}
		return c
	}
	for _, test := range []struct {
		claim Claim
		want  string
	}{
		{newToOld(">", 1.5, "1"), "holds: nodes=1 holds"},
		{newToOld(">=", 2, "1"), "unclear: nodes=1 unclear"},
		{newToOld("<", 3, "10"), "does not hold: nodes=10 does not hold"},
		{newToOld("within", 0.1, "10"), "does not hold: nodes=10 does not hold"},
		{newToOld("within", 1.5, "1"), "holds: nodes=1 holds"},
		{Claim{Metric: "m", Factor: "scheduler", A: "old", B: "new", Op: "<=", Value: 0.55, Where: at("1", "10")}, "holds: nodes=1 holds, nodes=10 holds"},
		{newToOld(">", 1, "100"), "unclear: nodes=100 unclear (an answer needs 3 blocks)"},
		{newToOld("<", 3), "does not hold: nodes=1 holds, nodes=10 does not hold, nodes=100 unclear (an answer needs 3 blocks)"},
		{newToOld(">", 1), "unclear: nodes=1 holds, nodes=10 holds, nodes=100 unclear (an answer needs 3 blocks)"},
		{newToOld(">", 1, "1000"), "unclear: no cell of the claim has results with m"},
		{Claim{Metric: "other", Op: ">", Value: 1}, "unclear: no cell of the claim has results with other"},
		{Claim{Metric: "m", Op: ">=", Value: 1.9, Where: map[string][]string{"scheduler": {"new"}, "nodes": {"1", "10"}}}, "holds: nodes=1, scheduler=new holds, nodes=10, scheduler=new holds"},
		{Claim{Metric: "m", Op: ">=", Value: 100, Where: map[string][]string{"scheduler": {"new"}, "nodes": {"1"}}}, "does not hold: nodes=1, scheduler=new does not hold"},
		{Claim{Metric: "m", Op: ">=", Value: 1, Where: map[string][]string{"scheduler": {"zero"}}}, "unclear: nodes=1, scheduler=zero unclear (the value of 1 of 3 trials is 0 or less)"},
	} {
		result := test.claim.Evaluate("name", samples, nil, Level)
		var parts []string
		for _, p := range result.Parts {
			text := JoinLevels(p.Cell, ", ") + " " + p.Verdict
			if p.Reason != "" {
				text += " (" + p.Reason + ")"
			}
			parts = append(parts, text)
		}
		if result.Reason != "" {
			parts = []string{result.Reason}
		}
		if got := result.Verdict + ": " + strings.Join(parts, ", "); got != test.want {
			t.Errorf("%s\n got %s\nwant %s", result.Text, got, test.want)
		}
		if v := test.claim.Evaluate("name", samples, nil, 0).Verdict; v != Unclear {
			t.Errorf("%s: %s although nothing is left to spend", result.Text, v)
		}
	}
}

func TestCheckClaim(t *testing.T) {
	factors := map[string][]string{"scheduler": {"slurm", "flux"}, "nodes": {"1", "10"}}
	for want, c := range map[string]Claim{
		"":                                 {Metric: "m", Factor: "scheduler", A: "slurm", B: "flux", Op: ">", Value: 1, Where: map[string][]string{"nodes": {"1", "10"}}},
		"factor, a and b require":          {Metric: "m", Factor: "scheduler", A: "slurm", Op: ">", Value: 1},
		"a factor or a baseline, not both": {Metric: "m", Factor: "scheduler", A: "slurm", B: "flux", Baseline: []string{"x"}, Op: ">", Value: 1},
		"within needs a factor":            {Metric: "m", Op: "within", Value: 1},
		"scheduler is also in where":       {Metric: "m", Factor: "scheduler", A: "slurm", B: "flux", Op: ">", Value: 1, Where: map[string][]string{"scheduler": {"slurm"}}},
		"scheduler=slrm is not in":         {Metric: "m", Factor: "scheduler", A: "slrm", B: "flux", Op: ">", Value: 1},
		"nodes=2 is not in the matrix":     {Metric: "m", Op: ">", Value: 1, Where: map[string][]string{"nodes": {"2"}}},
	} {
		if err := c.Check(factors); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", c, err, want)
		}
	}
	c := Claim{Metric: "throughput", Factor: "scheduler", A: "slurm", B: "flux", Op: "within", Value: 0.1, Where: map[string][]string{"nodes": {"1", "10"}}}
	if got := c.String(); got != "throughput of scheduler=slurm to scheduler=flux within 10 %, nodes=1|10" {
		t.Error(got)
	}
	if !c.IsAbout("throughput", "scheduler", "flux", "slurm", map[string]string{"nodes": "10"}) || c.IsAbout("throughput", "scheduler", "flux", "slurm", map[string]string{"nodes": "2"}) {
		t.Error("the claim covers the wrong rows")
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
	want := Comparison{Metric: "m", Blocks: 7, P: 1, Trials: 14, Unfinished: 1, Incomplete: 1, Answer: "unclear: 1 of 14 trials did not finish", Reason: "1 of 14 trials did not finish"}
	hidden := cmpopts.IgnoreUnexported(Comparison{})
	if diff := cmp.Diff(want, got, hidden); diff != "" || !ok {
		t.Error(ok, diff)
	}
	Holm([]*Comparison{&got}, Level)
	if diff := cmp.Diff(want, got, hidden); diff != "" {
		t.Error(diff)
	}
	if got, ok := Ratio(a, b, "throughput"); !ok || got.Interval == nil || got.Unfinished != 0 || got.Ratio < 1.8 || got.Answer != "more (1 of 14 trials did not finish)" {
		t.Errorf("throughput: %+v", got)
	}
	if got, ok := Ratio(a, b, "other"); ok {
		t.Errorf("a metric that no trial has: %+v", got)
	}
	r := Claim{Metric: "m", Factor: "s", A: "a", B: "b", Op: "<", Value: 0.9}.Evaluate("c", samples, nil, Level)
	if r.Verdict != Unclear || len(r.Parts) != 1 || r.Parts[0].Reason != "1 of 14 trials did not finish" {
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
