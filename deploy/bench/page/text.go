package page

import (
	"fmt"
	"math"

	"github.com/nixbench/nixbench/deploy/bench/stats"
)

// Table is a part of the summary of a sweep for a terminal.
type Table struct {
	Title string
	Head  []string
	Rows  [][]string
}

// Text returns the summary of a sweep: medians, ratios, claims. A part without rows is absent.
func Text(in Input) []Table {
	a := analyse(in)
	medians := Table{Title: "Medians", Head: []string{"cell", "metric", "median", "95 % interval", "trials"}}
	for _, g := range a.cells {
		for _, m := range a.metrics {
			if s, ok := stats.Median(g.Samples, m); ok {
				medians.Rows = append(medians.Rows, []string{nameCell(g.Cell), m, formatUnit(s.Median, m), formatInterval(s.Interval), fmt.Sprint(s.Count)})
			}
		}
	}
	ratios := Table{Title: "Ratios", Head: []string{"metric", "of", "to", "where", "ratio", "95 % interval", "answer"}}
	for _, r := range a.ratios {
		ratios.Rows = append(ratios.Rows, []string{
			r.Metric, r.factor + "=" + r.a, r.factor + "=" + r.b, stats.Name(r.cell), formatRatio(r.Ratio), formatInterval(r.Interval), r.Answer,
		})
	}
	claims := Table{Title: "Claims", Head: []string{"claim", "where", "ratio", "95 % interval", "verdict"}}
	for _, c := range in.Claims {
		for _, p := range c.Parts {
			claims.Rows = append(claims.Rows, []string{
				c.Claim.Text, stats.Name(p.Cell), formatRatio(p.Comparison.Ratio), formatInterval(p.Comparison.Interval), describeVerdict(p),
			})
		}
		if len(c.Parts) == 0 {
			claims.Rows = append(claims.Rows, []string{c.Claim.Text, "", "", "", c.Verdict + ": " + c.Reason})
		}
	}
	var out []Table
	for _, t := range []Table{medians, ratios, claims} {
		if len(t.Rows) > 0 {
			out = append(out, t)
		}
	}
	return out
}

// nameCell returns the name of a cell. A sweep without factors has one cell without a name.
func nameCell(cell map[string]string) string {
	if len(cell) == 0 {
		return "all"
	}
	return stats.Name(cell)
}

// formatNumber returns a number with three digits, or with more before the point.
func formatNumber(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

func formatUnit(v float64, metric string) string {
	if u := describe(metric).Unit; u != "" {
		return formatNumber(v) + " " + u
	}
	return formatNumber(v)
}

// formatRatio returns a ratio, or a dash if it is unknown.
func formatRatio(r float64) string {
	if r == 0 {
		return "–"
	}
	return "×" + formatNumber(r)
}

// describeVerdict returns the verdict of a part of a claim with its reason.
func describeVerdict(p stats.ClaimPart) string {
	if p.Reason == "" {
		return p.Verdict
	}
	return p.Verdict + ": " + p.Reason
}

// formatInterval returns an interval, or a dash if too few trials allow none.
func formatInterval(i *stats.Interval) string {
	if i == nil {
		return "–"
	}
	return formatNumber(i.Low) + " to " + formatNumber(i.High)
}
