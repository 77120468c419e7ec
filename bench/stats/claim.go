package stats

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Claim is an expectation about the ratio of the medians of two levels of a factor, such as
//
//	ratio(throughput, scheduler, volcano, default, nodes=10) >= 1.2
//
// This claim says that the throughput of volcano is at least 1.2 times that of default. Pairs after the two levels, such as nodes=10,
// restrict the cells. Levels with spaces or punctuation are in double quotes.
type Claim struct {
	Text   string            `json:"text"`
	Metric string            `json:"metric"`
	Factor string            `json:"factor"`
	A      string            `json:"a"`
	B      string            `json:"b"`
	Where  map[string]string `json:"where,omitempty"`
	Op     string            `json:"op"` // > >= < <=
	Number float64           `json:"number"`
}

// Verdicts of a claim.
const (
	Holds   = "holds"
	Refuted = "does not hold"
	Unclear = "unclear"
)

// ClaimResult is the verdict of a claim. A claim holds if it holds for all combinations of the levels of the other factors.
type ClaimResult struct {
	Claim   Claim       `json:"claim"`
	Verdict string      `json:"verdict"`
	Reason  string      `json:"reason,omitempty"` // why no combination could be compared
	Parts   []ClaimPart `json:"parts,omitempty"`
}

// ClaimPart is the verdict of a claim for one combination of the levels of the other factors.
type ClaimPart struct {
	Cell       map[string]string `json:"cell,omitempty"`
	Comparison Comparison        `json:"comparison"`
	Verdict    string            `json:"verdict"`
	Reason     string            `json:"reason,omitempty"` // why the levels could not be compared
}

// claimRE matches a claim. pairRE matches a pair of a factor and a level in a claim. word matches a name or a level.
var (
	claimRE = regexp.MustCompile(`^\s*ratio\s*\(` + word + `,` + word + `,` + word + `,` + word + `((?:,` + word + `=` + word + `)*)\)\s*(>=|<=|>|<)\s*(\S+)\s*$`)
	pairRE  = regexp.MustCompile(`,` + word + `=` + word)
)

const word = `\s*("[^"]*"|[^\s,()=<>"]+)\s*`

// ParseClaim parses the text of a claim, such as the example at [Claim].
func ParseClaim(text string) (Claim, error) {
	m := claimRE.FindStringSubmatch(text)
	if m == nil {
		return Claim{}, fmt.Errorf("claim %q: it has not the form ratio(METRIC, FACTOR, LEVEL, LEVEL, FACTOR=LEVEL, …) > NUMBER, where the operator may be >, >=, < or <=, and a level with spaces or punctuation is in double quotes", text)
	}
	pairs := m[5]
	for i := range m {
		m[i] = strings.Trim(m[i], `"`)
	}
	c := Claim{Text: strings.TrimSpace(text), Metric: m[1], Factor: m[2], A: m[3], B: m[4], Where: map[string]string{}, Op: m[8]}
	for _, pair := range pairRE.FindAllStringSubmatch(pairs, -1) {
		factor := strings.Trim(pair[1], `"`)
		if _, twice := c.Where[factor]; twice || factor == c.Factor {
			return Claim{}, fmt.Errorf("claim %q: the factor %s occurs twice", text, factor)
		}
		c.Where[factor] = strings.Trim(pair[2], `"`)
	}
	var err error
	if c.Number, err = strconv.ParseFloat(m[9], 64); err != nil || math.IsNaN(c.Number) || math.IsInf(c.Number, 0) {
		return Claim{}, fmt.Errorf("claim %q: %q is not a number", text, m[9])
	}
	return c, nil
}

// Evaluate compares the two levels of the claim. It does so for each combination of the other factors' levels that has samples of both.
func (c Claim) Evaluate(samples []Sample) ClaimResult {
	for factor, level := range c.Where {
		samples = Select(samples, factor, level)
	}
	out := ClaimResult{Claim: c, Verdict: Unclear}
	for _, g := range GroupBy(samples, c.Factor) {
		comparison, ok := Ratio(Select(g.Samples, c.Factor, c.A), Select(g.Samples, c.Factor, c.B), c.Metric)
		if !ok {
			continue
		}
		p := ClaimPart{Cell: g.Cell, Comparison: comparison, Verdict: c.judge(comparison.Interval)}
		if comparison.Incomplete > 0 {
			p.Reason = fmt.Sprintf("%d of %d trials did not finish", comparison.Incomplete, comparison.Trials)
		}
		out.Parts = append(out.Parts, p)
	}
	if len(out.Parts) == 0 {
		out.Reason = fmt.Sprintf("no block has trials of both %s=%s and %s=%s with a %s greater than 0", c.Factor, c.A, c.Factor, c.B, c.Metric)
		return out
	}
	has := func(verdict string) bool {
		return slices.ContainsFunc(out.Parts, func(p ClaimPart) bool { return p.Verdict == verdict })
	}
	switch {
	case has(Refuted):
		out.Verdict = Refuted
	case !has(Unclear):
		out.Verdict = Holds
	}
	return out
}

// judge returns the verdict of the claim for a confidence interval: the claim holds only if all ratios in the interval satisfy it, and
// fails only if none of them does.
func (c Claim) judge(i *Interval) string {
	if i == nil {
		return Unclear
	}
	holds := func(ratio float64) bool {
		switch c.Op {
		case ">":
			return ratio > c.Number
		case ">=":
			return ratio >= c.Number
		case "<":
			return ratio < c.Number
		}
		return ratio <= c.Number
	}
	switch low, high := holds(i.Low), holds(i.High); {
	case low && high:
		return Holds
	case !low && !high:
		return Refuted
	}
	return Unclear
}
