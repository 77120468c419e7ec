package page

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/stats"
)

// maxRequests is the maximum number of kinds of requests (such as list and watch) that the table shows for a program in a cell. All other
// kinds share one row.
const maxRequests = 5

// viewRequests returns a table with the median numbers of requests that the scheduler's programs counted, by cell, without invalid trials.
func viewRequests(in Input) Table {
	trials := map[string][][]player.Request{}
	for _, t := range in.Trials {
		if t.Verdict != bench.Invalid && len(t.Requests) > 0 {
			trials[nameCell(t.Cell)] = append(trials[nameCell(t.Cell)], t.Requests)
		}
	}
	out := Table{Head: []string{"Cell", "Program", "Request", "Resource", "Number"}}
	for _, c := range in.Cells {
		out.Rows = append(out.Rows, viewCellRequests(nameCell(c), trials[nameCell(c)])...)
	}
	return out
}

// viewCellRequests returns the rows of the table of requests for one cell.
func viewCellRequests(cell string, trials [][]player.Request) [][]string {
	counts := map[player.Request][]float64{}
	for _, requests := range trials {
		for _, r := range player.SumRequests(requests) {
			key := r
			key.Count = 0
			counts[key] = append(counts[key], float64(r.Count))
		}
	}
	type row struct {
		player.Request
		median float64
	}
	var rows []row
	for r, values := range counts {
		values = append(values, make([]float64, len(trials)-len(values))...) // a trial without such a request counts as 0
		rows = append(rows, row{r, stats.MedianOf(values)})
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.Program, b.Program), cmp.Compare(b.median, a.median), cmp.Compare(a.Verb, b.Verb), cmp.Compare(a.Resource, b.Resource))
	})
	var out [][]string
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].Program == rows[0].Program {
			n++
		}
		program := rows[0].Source()
		shown := min(n, maxRequests)
		for _, r := range rows[:shown] {
			out = append(out, []string{cell, program, r.Verb, r.Resource, formatCount(r.median)})
		}
		rest := 0.0
		for _, r := range rows[shown:n] {
			rest += r.median
		}
		if shown < n {
			out = append(out, []string{cell, program, fmt.Sprintf("%d others", n-shown), "", formatCount(rest)})
		}
		rows = rows[n:]
	}
	return out
}

// formatCount returns a number of requests as text. The median of an even number of trials may end in .5.
func formatCount(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
