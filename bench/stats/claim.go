package stats

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Claim is an expectation about the ratio of the medians of two levels of a factor, such as
//
//	ratio(throughput, scheduler, volcano, default, nodes=10) >= 1.2
//
// The pairs after the levels restrict the cells. Levels with spaces or punctuation are in double quotes.
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

// ParseClaim parses a claim. Errors contain the column, which counts characters from 1.
func ParseClaim(text string) (Claim, error) {
	s := &scanner{text: []rune(text)}
	c := Claim{Text: strings.TrimSpace(text), Where: map[string]string{}}
	s.want("ratio")
	s.want("(")
	c.Metric = s.word("the name of a metric")
	s.want(",")
	c.Factor = s.word("the name of a factor")
	s.want(",")
	c.A = s.word("a level")
	s.want(",")
	c.B = s.word("a level")
	for s.err == nil && s.accept(",") {
		s.skip()
		at := s.at
		factor := s.word("the name of a factor")
		s.want("=")
		level := s.word("a level")
		if _, twice := c.Where[factor]; twice || factor == c.Factor {
			s.fail(at, "the factor %s occurs twice", factor)
		}
		c.Where[factor] = level
	}
	s.want(")")
	c.Op = s.operator()
	s.skip()
	at := s.at
	number := s.word("a number")
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		s.fail(at, "%q is not a number", number)
	}
	c.Number = n
	s.skip()
	if s.at < len(s.text) {
		s.fail(s.at, "expected the end, found %s", s.found())
	}
	if s.err != nil {
		return Claim{}, fmt.Errorf("claim %q: %w", text, s.err)
	}
	return c, nil
}

// scanner reads the parts of a claim. After the first error it reads nothing.
type scanner struct {
	text []rune
	at   int
	err  error
}

func (s *scanner) fail(at int, format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("column %d: %s", at+1, fmt.Sprintf(format, args...))
	}
}

func (s *scanner) skip() {
	for s.at < len(s.text) && (s.text[s.at] == ' ' || s.text[s.at] == '\t') {
		s.at++
	}
}

// found describes the text at the position.
func (s *scanner) found() string {
	if s.at >= len(s.text) {
		return "the end"
	}
	return strconv.Quote(string(s.text[s.at]))
}

// accept skips a text if it is next.
func (s *scanner) accept(text string) bool {
	s.skip()
	if s.err != nil || !strings.HasPrefix(string(s.text[s.at:]), text) {
		return false
	}
	s.at += len([]rune(text))
	return true
}

func (s *scanner) want(text string) {
	if !s.accept(text) {
		s.fail(s.at, "expected %q, found %s", text, s.found())
	}
}

// word reads a name, a level or a number.
func (s *scanner) word(what string) string {
	s.skip()
	if s.err != nil {
		return ""
	}
	begin := s.at
	if s.at < len(s.text) && s.text[s.at] == '"' {
		end := slices.Index(s.text[begin+1:], '"')
		if end < 0 {
			s.fail(begin, "the quote does not end")
			return ""
		}
		s.at = begin + 1 + end + 1
		return string(s.text[begin+1 : s.at-1])
	}
	for s.at < len(s.text) && !strings.ContainsRune(" \t,()=<>\"", s.text[s.at]) {
		s.at++
	}
	if s.at == begin {
		s.fail(s.at, "expected %s, found %s", what, s.found())
	}
	return string(s.text[begin:s.at])
}

func (s *scanner) operator() string {
	for _, op := range []string{">=", "<=", ">", "<"} {
		if s.accept(op) {
			return op
		}
	}
	s.fail(s.at, "expected >, >=, < or <=, found %s", s.found())
	return ""
}

// Evaluate compares the levels of the claim for each combination of the other factors' levels that has both.
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

// judge returns the verdict for the interval of a ratio: it holds or does not hold for the whole interval.
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
