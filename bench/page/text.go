package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/stats"
)

// Table is a table of the summary of a sweep, for output in a terminal.
type Table struct {
	Title string
	Note  string // may be empty
	Head  []string
	Rows  [][]string
}

// Text returns the summary of a sweep: tables of medians, noise, ratios, claims, limits, and differences between systems. A table without
// rows and note is left out.
func Text(in Input) []Table {
	a := analyse(in)
	medians := Table{Title: "Medians", Head: []string{"cell", "metric", "median", "95 % interval", "trials"}}
	for _, g := range a.cells {
		for _, m := range a.metrics {
			if s, ok := stats.Median(g.Samples, m); ok {
				medians.Rows = append(medians.Rows, []string{nameCell(g.Cell), m, formatUnit(s.Median, m), formatInterval(s.Interval), countTrials(s)})
			}
		}
	}
	ratios := Table{Title: "Ratios", Head: []string{"metric", "of", "to", "where", "ratio", "95 % interval", "answer"}}
	for _, r := range a.ratios {
		ratios.Rows = append(ratios.Rows, []string{
			r.Metric, r.factor + "=" + r.a, r.factor + "=" + r.b, stats.Name(r.cell), formatRatio(r.Ratio), formatInterval(r.Interval), r.Answer,
		})
	}
	var out []Table
	for _, t := range []Table{medians, textNoise(a), ratios, listClaims(in), textLimits(in, a), textSystems(in)} {
		if len(t.Rows) > 0 || t.Note != "" {
			out = append(out, t)
		}
	}
	return out
}

// listClaims returns a table with the verdict of each claim, for each combination of the levels of the factors that the claim leaves open.
func listClaims(in Input) Table {
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
	return claims
}

// textLimits returns a table of those limits of schedulers that are rates (requests per second). Cells with the same limits share a row.
func textLimits(in Input, a analysis) Table {
	t := Table{Title: "Limits", Head: []string{"limit", "rate", "where", "result"}}
	others := 0
	for _, l := range in.Limits {
		if l.Rate <= 0 {
			others++
			continue
		}
		v := viewLimit(l, a.cells)
		i := slices.IndexFunc(t.Rows, func(row []string) bool { return row[0] == v.Name && row[1] == v.Rate })
		if i < 0 {
			t.Rows = append(t.Rows, []string{v.Name, v.Rate, v.Cell, v.Limited})
			continue
		}
		t.Rows[i][2] += "; " + v.Cell
		t.Rows[i][3] = strings.TrimPrefix(t.Rows[i][3]+"; "+v.Limited, "; ")
	}
	for _, row := range t.Rows {
		row[3] = cmp.Or(strings.TrimSuffix(row[3], "; "), "not reached")
	}
	if others > 0 {
		t.Note = "show --html shows all settings of the schedulers that can limit a result."
	}
	return t
}

// maxPackages is the maximum number of changed packages that one line of the table of system differences names.
const maxPackages = 6

// textSystems returns a table of the differences between the NixOS systems of the levels of each factor.
func textSystems(in Input) Table {
	t := Table{Title: "Differences between systems", Note: noteUndeclared(in.Systems), Head: []string{"of", "to", "store paths", "packages", "not declared"}}
	for _, c := range in.Systems {
		packages := c.Packages
		if more := len(packages) - maxPackages; more > 0 {
			packages = append(slices.Clone(packages[:maxPackages]), fmt.Sprintf("and %d more", more))
		}
		t.Rows = append(t.Rows, []string{bench.FormatCell(c.A), bench.FormatCell(c.B), c.String(), strings.Join(packages, ", "), cmp.Or(strings.Join(c.Undeclared, ", "), "–")})
	}
	return t
}

// noteUndeclared returns a sentence which says that the results are confounded, if levels of a factor differ in more than their
// declarations say. Otherwise it returns an empty string.
func noteUndeclared(systems []bench.LevelDifference) string {
	if slices.ContainsFunc(systems, func(d bench.LevelDifference) bool { return len(d.Undeclared) > 0 }) {
		return "Confounded: levels differ in something that the matrix does not declare, so a difference between their results has no single cause."
	}
	return ""
}

// nameCell returns the name of a cell. A sweep without factors has one cell without a name.
func nameCell(cell map[string]string) string {
	if len(cell) == 0 {
		return "all"
	}
	return stats.Name(cell)
}

// countTrials returns a text with the number of trials, and the number of those that did not finish.
func countTrials(s stats.Summary) string {
	if s.Incomplete > 0 {
		return fmt.Sprintf("%d, %d did not finish", s.Count, s.Incomplete)
	}
	return fmt.Sprint(s.Count)
}

// formatNumber returns a number with three significant digits, and with all digits before the point. An infinite number stands for a trial
// that did not finish.
func formatNumber(v float64) string {
	switch a := math.Abs(v); {
	case math.IsInf(v, 0):
		return "did not finish"
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
	if u := describe(metric).Unit; u != "" && !math.IsInf(v, 0) {
		return formatNumber(v) + " " + u
	}
	return formatNumber(v)
}

// formatRatio returns the text of a ratio, or a dash if the ratio is unknown.
func formatRatio(r float64) string {
	if r == 0 {
		return "–"
	}
	return "×" + formatNumber(r)
}

// describeVerdict returns the verdict of a claim for one combination of levels, with the reason if there is one.
func describeVerdict(p stats.ClaimPart) string {
	if p.Reason == "" {
		return p.Verdict
	}
	return p.Verdict + ": " + p.Reason
}

// formatInterval returns the text of a confidence interval. It returns a dash if there are too few trials for an interval, or if both ends
// are infinite.
func formatInterval(i *stats.Interval) string {
	if i == nil || math.IsInf(i.Low, 0) && math.IsInf(i.High, 0) {
		return "–"
	}
	return formatNumber(i.Low) + " to " + formatNumber(i.High)
}
