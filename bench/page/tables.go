package page

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/stats"
	"github.com/nixbench/nixbench/bench/trial"
	"github.com/nixbench/nixbench/deploy/event"
)

// Table is a table of the results of a sweep, for the page and for a terminal.
type Table struct {
	Title string
	Note  string // may be empty
	Head  []string
	Rows  [][]string
}

// SummaryTables returns the summary of a sweep for a terminal: tables of claims, means, ratios, noise, limits, and differences between systems. A
// table without rows and note is left out.
func SummaryTables(in Input) []Table {
	a := analyse(in)
	return keepFilled(a.listClaims(in.Claims), a.listMeans(a.metrics), a.listRatios(), a.listNoise(), a.listLimits(false), a.listSystems(in.Systems), a.listReasons(slices.Concat(in.Failed, in.Trials)))
}

func keepFilled(tables ...Table) []Table {
	return slices.DeleteFunc(tables, func(t Table) bool { return len(t.Rows) == 0 && t.Note == "" })
}

func (a analysis) listClaims(results []stats.ClaimResult) Table {
	t := Table{Title: "Claims", Head: []string{"verdict", "claim", "where", "value"}}
	for _, c := range results {
		text := c.Name + ": " + c.Text
		if len(c.Parts) != 1 {
			t.Rows = append(t.Rows, []string{joinReason(c.Verdict, c.Reason), text, "", ""})
			text = c.Name
		}
		for _, p := range c.Parts {
			value := FormatRatio(p.Value)
			if c.Claim.Factor == "" && len(c.Claim.Baseline) == 0 && p.Value != 0 {
				value = formatUnit(p.Value, c.Claim.Metric)
			}
			if p.Interval != nil {
				value += fmt.Sprintf(" (%s), p %s", FormatInterval(p.Interval), formatP(p.P))
			}
			t.Rows = append(t.Rows, []string{joinReason(p.Verdict, p.Reason), text, a.where(p.Cell), value})
		}
	}
	return t
}

func (a analysis) listMeans(metrics []string) Table {
	t := Table{Title: "Means", Head: []string{"metric", "cell", "mean", "95 % interval", "trials"}}
	if same := stats.JoinLevels(a.same, ", "); same != "" {
		t.Note = "In all cells: " + same + "."
	}
	all := a.means()
	for _, metric := range metrics {
		for _, m := range all {
			if m.Metric != metric {
				continue
			}
			mean, trials := "did not finish", fmt.Sprint(m.Trials)
			if m.Mean != nil {
				mean = formatUnit(*m.Mean, metric)
			}
			if m.Unfinished > 0 {
				trials += fmt.Sprintf(", %d did not finish", m.Unfinished)
			}
			t.Rows = append(t.Rows, []string{metric, a.name(m.Cell), mean, FormatInterval(m.Interval), trials})
		}
	}
	return t
}

func (a analysis) listRatios() Table {
	t := Table{Title: "Ratios", Head: []string{"metric", "of", "where", "ratio", "95 % interval", "answer", "test"}}
	for _, r := range a.ratios {
		levels := strings.TrimPrefix(r.Factor, "roles.") + "=" + r.A + " to " + r.B
		if r.Factor == "scheduler" {
			levels = r.A + " to " + r.B
		}
		t.Rows = append(t.Rows, []string{r.Metric, levels, a.where(r.Cell), FormatRatio(r.Comparison.Ratio), FormatInterval(r.Interval), r.Answer, r.Kind})
	}
	return t
}

// listNoise returns a table of the noise of each metric, the smallest ratio that a comparison can see with that noise, and the comparisons of
// equal cells.
func (a analysis) listNoise() Table {
	t := Table{Title: "Noise", Head: []string{"metric", "noise of a trial", "visible ratio", "equal cells"}}
	if len(a.floor) == 0 && len(a.metrics) > 0 {
		t.Note = `No cell was measured twice in each block; the factor repeat = [ "1" "2" ] does so.`
	}
	for _, m := range a.metrics {
		row := []string{m, "–", "–", "–"}
		if n := a.noiseOf(m); !math.IsNaN(n) {
			kind, blocks, family := "", 0, 0
			for _, r := range a.ratios {
				if r.Metric == m && r.Kind != ofClaim {
					kind, blocks = r.Kind, max(blocks, r.Blocks)
				}
			}
			for _, r := range a.ratios {
				if r.Kind == kind {
					family++
				}
			}
			row[1] = fmt.Sprintf("%.1f %%", 100*n)
			if family > 0 {
				row[2] = FormatRatio(stats.Detectable(n, blocks, family))
			}
		}
		var equal []string
		for _, r := range a.floor {
			if r.Metric == m {
				equal = append(equal, fmt.Sprintf("%s (%s)", FormatRatio(r.Comparison.Ratio), r.Answer))
			}
		}
		row[3] = cmp.Or(strings.Join(equal, "; "), row[3])
		t.Rows = append(t.Rows, row)
	}
	return t
}

// listLimits returns a table of the limits of schedulers, or, unless all is true, only of those that are rates. Cells with the same limits
// share a row.
func (a analysis) listLimits(all bool) Table {
	t := Table{Title: "Limits", Head: []string{"limit", "value", "where"}}
	for _, x := range a.all {
		where := a.name(stats.Without(x.Cell, bench.WorkloadFactor, bench.RepeatFactor, bench.SubmissionFactor))
		for _, l := range x.Limits {
			value := l.Value
			switch {
			case l.Rate > 0:
				value = formatNumber(l.Rate) + " /s"
			case !all:
				t.Note = "show --html shows all settings of the schedulers that can limit a result."
				continue
			}
			if i := slices.IndexFunc(t.Rows, func(row []string) bool { return row[0] == l.Name && row[1] == value }); i < 0 {
				t.Rows = append(t.Rows, []string{l.Name, value, where})
			} else if !slices.Contains(strings.Split(t.Rows[i][2], "; "), where) {
				t.Rows[i][2] += "; " + where
			}
		}
	}
	return t
}

// listSystems returns a table of the differences between the NixOS systems of the levels of each factor. Its note says that the results are
// confounded if levels of a factor differ in more than their declarations say.
func (a analysis) listSystems(systems []bench.LevelDifference) Table {
	t := Table{Title: "Differences between systems", Head: []string{"of", "to", "store paths", "packages", "not declared"}}
	for _, c := range systems {
		if len(c.Undeclared) > 0 {
			t.Note = "Confounded: levels differ in something that the matrix does not declare, so a difference between their results has no single cause."
		}
		t.Rows = append(t.Rows, []string{a.name(c.A), a.name(c.B), c.String(), event.Abbreviate(c.Packages, ", "), cmp.Or(strings.Join(c.Undeclared, ", "), "–")})
	}
	return t
}

// numbers matches the numbers in a reason, which differ from trial to trial.
var numbers = regexp.MustCompile(`[0-9.]+`)

// listReasons returns a table of the reasons why trials failed, or are not valid, with the trials that have each reason.
func (a analysis) listReasons(trials []Trial) Table {
	t := Table{Title: "Reasons", Head: []string{"number", "reason", "trials"}}
	order := []string{bench.Failed, bench.Invalid, bench.Suspect, bench.Valid}
	slices.SortStableFunc(trials, func(a, b Trial) int { return slices.Index(order, a.State) - slices.Index(order, b.State) })
	cells := map[string][]string{} // by the reason without numbers
	var keys []string
	for _, x := range trials {
		reasons := x.Reasons
		if x.Incomplete && x.State != bench.Failed {
			reasons = append(slices.Clone(reasons), "not all jobs finished")
		}
		for _, reason := range reasons {
			key := numbers.ReplaceAllString(reason, "")
			if cells[key] == nil {
				t.Note = "Why trials are not valid. Numbers are those of the first trial."
				keys, t.Rows = append(keys, key), append(t.Rows, []string{"", reason, ""})
			}
			cells[key] = append(cells[key], fmt.Sprintf("%s block %d: %s", a.name(x.Cell), x.Block, x.State))
		}
	}
	for i, key := range keys {
		t.Rows[i][0], t.Rows[i][2] = fmt.Sprintf("%d of %d", len(cells[key]), len(trials)), event.Abbreviate(cells[key], "; ")
	}
	return t
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
	if u := trial.Unit(metric); u != "" && !math.IsInf(v, 0) {
		return formatNumber(v) + " " + u
	}
	return formatNumber(v)
}

// FormatRatio returns the text of a ratio, or a dash if the ratio is unknown.
func FormatRatio(r float64) string {
	if r == 0 || math.IsInf(r, 0) {
		return "–"
	}
	return "×" + formatNumber(r)
}

// formatP returns the text of a p-value. Values below 0.001 are only estimates, so each of them is written as <0.001.
func formatP(p float64) string {
	if p < 0.001 {
		return "< 0.001"
	}
	return fmt.Sprintf("%.3f", p)
}

// FormatInterval returns the text of a confidence interval, or a dash if there is none.
func FormatInterval(i *stats.Interval) string {
	if i == nil {
		return "–"
	}
	return formatNumber(i.Low) + " to " + formatNumber(i.High)
}

func joinReason(verdict, reason string) string { return strings.TrimSuffix(verdict+": "+reason, ": ") }
