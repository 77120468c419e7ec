package stats

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/failure"
)

// Claim is an expectation that a benchmark declares. The claimed value of a cell is one of these:
//
//   - with a factor: the ratio of the levels a and b of this factor, for each combination of the other factors' levels;
//   - with a baseline: the ratio of the cell to the same cell of other sweeps;
//   - otherwise the metric itself.
type Claim struct {
	Metric   string              `json:"metric"`
	Factor   string              `json:"factor,omitempty"`
	A        string              `json:"a,omitempty"`
	B        string              `json:"b,omitempty"`
	Baseline []string            `json:"baseline,omitempty"` // ids of sweeps
	Where    map[string][]string `json:"where,omitempty"`    // the levels of the cells, by factor; a factor that is not here has all its levels
	Op       string              `json:"op"`                 // > >= < <= or within: the ratio is between 1/(1 + Value) and 1 + Value
	Value    float64             `json:"value"`
}

// Verdicts of a claim.
const (
	Holds   = "holds"
	Refuted = "does not hold"
	Unclear = "unclear"
)

// ClaimResult is the verdict of a claim. A claim holds if it holds in all cells.
type ClaimResult struct {
	Name    string      `json:"name"`
	Claim   Claim       `json:"claim"`
	Text    string      `json:"text"`
	Verdict string      `json:"verdict"`
	Reason  string      `json:"reason,omitempty"` // why no cell has a value
	Parts   []ClaimPart `json:"parts,omitempty"`
}

// ClaimPart is the verdict of a claim in one cell, or for one combination of the levels of the factors other than that of the claim.
type ClaimPart struct {
	Cell     map[string]string `json:"cell,omitempty"`
	Value    float64           `json:"value,omitempty"`    // absent if it is unknown
	Interval *Interval         `json:"interval,omitempty"` // of 95 %
	P        float64           `json:"p"`                  // p-value of the test that the value is the number in the claim
	Verdict  string            `json:"verdict"`
	Reason   string            `json:"reason,omitempty"` // why there is no value or no interval
}

// Check returns an error if the claim contradicts itself, or is about a factor or a level that is not in factors.
func (c Claim) Check(factors map[string][]string) error {
	if (c.Factor == "") != (c.A == "") || (c.Factor == "") != (c.B == "") {
		return fmt.Errorf("factor, a and b require each other")
	}
	if c.Factor != "" && len(c.Baseline) > 0 {
		return fmt.Errorf("a claim has a factor or a baseline, not both")
	}
	isRatio := c.Factor != "" || len(c.Baseline) > 0
	if c.Op == "within" && (!isRatio || c.Value <= 0) || isRatio && c.Value <= 0 {
		return fmt.Errorf("the value of a claim about a ratio is above 0, and within needs a factor or a baseline")
	}
	if _, twice := c.Where[c.Factor]; twice {
		return fmt.Errorf("the factor %s is also in where", c.Factor)
	}
	wanted := map[string][]string{}
	maps.Copy(wanted, c.Where)
	if c.Factor != "" {
		wanted[c.Factor] = []string{c.A, c.B}
	}
	for _, factor := range slices.Sorted(maps.Keys(wanted)) {
		if factors[factor] == nil {
			return fmt.Errorf("%s is not in the matrix%s", factor, failure.Suggest(factor, slices.Sorted(maps.Keys(factors))))
		}
		for _, level := range wanted[factor] {
			if !slices.Contains(factors[factor], level) {
				return fmt.Errorf("%s=%s is not in the matrix%s", factor, level, failure.Suggest(level, factors[factor]))
			}
		}
	}
	return nil
}

// String returns the claim as text, such as `throughput of scheduler=slurm to scheduler=kubernetes >= 1.2, workload=burst`.
func (c Claim) String() string {
	out := c.Metric
	switch {
	case c.Factor != "":
		out += fmt.Sprintf(" of %s=%s to %s=%s", c.Factor, c.A, c.Factor, c.B)
	case len(c.Baseline) > 0:
		out += " to " + strings.Join(c.Baseline, ", ")
	}
	value := fmt.Sprint(c.Value)
	if c.Op == "within" {
		value = fmt.Sprintf("%g %%", 100*c.Value)
	}
	out += " " + c.Op + " " + value
	for _, f := range slices.Sorted(maps.Keys(c.Where)) {
		out += ", " + f + "=" + strings.Join(c.Where[f], "|")
	}
	return out
}

// isAboutCell reports whether the claim is about the cell.
func (c Claim) isAboutCell(cell map[string]string) bool {
	for factor, levels := range c.Where {
		if !slices.Contains(levels, cell[factor]) {
			return false
		}
	}
	return true
}

// IsAbout reports whether a comparison of two levels of a factor in a cell is that of the claim.
func (c Claim) IsAbout(metric, factor, a, b string, cell map[string]string) bool {
	return c.Metric == metric && c.Factor == factor && (c.A == a && c.B == b || c.A == b && c.B == a) && c.isAboutCell(cell)
}

// Evaluate returns the verdict of the claim. baselines has the samples of each sweep of the baseline. A true claim is refuted, and a wrong
// claim holds, with a probability of at most level: each cell has a test of its own, and of several cells, those against the claim are
// corrected for their number.
func (c Claim) Evaluate(name string, samples []Sample, baselines [][]Sample, level float64) ClaimResult {
	out := ClaimResult{Name: name, Claim: c, Text: c.String(), Verdict: Unclear}
	var estimates []*estimate
	for _, g := range GroupBy(Keep(samples, func(s Sample) bool { return c.isAboutCell(s.Cell) }), c.Factor) {
		if part, e, ok := c.measure(g, baselines); ok {
			out.Parts, estimates = append(out.Parts, part), append(estimates, e)
		}
	}
	switch {
	case len(out.Parts) == 0:
		out.Reason = "no cell of the claim has results with " + c.Metric
		return out
	case level <= 0:
		out.Reason, estimates = nothingLeft, make([]*estimate, len(out.Parts))
	}
	held := 0
	for i, e := range estimates {
		p := &out.Parts[i]
		p.Verdict, p.P = Unclear, 1
		if e == nil {
			continue
		}
		interval := e.interval(Level)
		p.Interval, p.P = &interval, c.p(*e)
		switch p.Verdict = c.judge(*e, level, len(estimates)); p.Verdict {
		case Holds:
			held++
		case Refuted:
			out.Verdict = Refuted
		}
	}
	if held == len(estimates) {
		out.Verdict = Holds
	}
	return out
}

// measure returns the value of a claim for a group of samples. The estimate is nil if there is no interval. measure returns false if the
// group has no value.
func (c Claim) measure(g Group, baselines [][]Sample) (part ClaimPart, e *estimate, ok bool) {
	part.Cell = g.Cell
	if c.Factor == "" && len(c.Baseline) == 0 {
		s, ok := Mean(g.Samples, c.Metric)
		if part.Reason = s.Reason; s.Mean != nil {
			part.Value = *s.Mean
		}
		if s.Interval == nil {
			return part, nil, ok
		}
		return part, &s.estimate, ok
	}
	var r Comparison
	if c.Factor != "" {
		r, ok = Ratio(Select(g.Samples, c.Factor, c.A), Select(g.Samples, c.Factor, c.B), c.Metric)
	} else {
		same := Map(baselines, func(b []Sample) []Sample {
			return Keep(b, func(s Sample) bool { return maps.Equal(s.Cell, g.Cell) })
		})
		r, ok = compareSweeps([][]Sample{g.Samples}, same, c.Metric, 1, fmt.Sprintf("a sweep is one observation, and the baseline needs %d", MinUnits))
	}
	part.Value, part.Reason = r.Ratio, r.Reason
	if r.Incomplete > 0 && c.Factor != "" {
		part.Reason = describeIncomplete(r.Incomplete, r.Trials)
	}
	if r.Interval == nil {
		return part, nil, ok
	}
	return part, &r.estimate, ok
}

// bounds returns the smallest and the largest value with which the claim is true.
func (c Claim) bounds() (low, high float64) {
	switch c.Op {
	case ">", ">=":
		return c.Value, math.Inf(1)
	case "<", "<=":
		return math.Inf(-1), c.Value
	}
	return 1 / (1 + c.Value), 1 + c.Value
}

// p returns the p-value of the test that the value is the bound of the claim which is nearest to it.
func (c Claim) p(e estimate) float64 {
	low, high := c.bounds()
	p := 0.0
	for _, bound := range []float64{low, high} {
		if bound > 0 && !math.IsInf(bound, 0) {
			p = max(p, e.p(bound))
		}
	}
	return p
}

// judge returns the verdict of one of the parts of a claim: it holds if the whole interval is within the bounds of the claim, and does not
// hold if the whole interval, corrected for the number of parts, is beyond one of them.
func (c Claim) judge(e estimate, level float64, parts int) string {
	low, high := c.bounds()
	if i := e.interval(level); i.Low >= low && i.High <= high {
		return Holds
	}
	if i := e.interval(level / float64(parts)); i.High < low || i.Low > high {
		return Refuted
	}
	return Unclear
}
