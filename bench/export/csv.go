// Package export writes the results of a sweep as a table for other programs.
package export

import (
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/stats"
)

// columns are the names of the columns that each table has, before and after those of the factors. A factor with such a name gets a prefix.
var columns = [2][]string{{"sweep", "cell"}, {"block", "order", "attempt", "verdict", "reasons", "metric", "value"}}

// WriteCSV writes a table of the values of all attempts of trials, without the trials of the warm-up. An attempt has one row for each metric,
// for each kind of request, and for each figure of its noise. Each attempt, also a failed one without metrics, has the row complete: 1 if all
// jobs finished, else 0. A text that a spreadsheet would read as a formula gets a ' in front, because another user may have chosen the names.
// attempts is the result of [bench.Store.AllAttempts]. Equal sweeps give equal tables.
func WriteCSV(w io.Writer, s bench.Sweep, attempts map[int][]bench.Attempt) error {
	table := csv.NewWriter(w)
	write := func(row []string) error {
		for i, text := range row {
			if _, err := strconv.ParseFloat(text, 64); err != nil && text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
				row[i] = "'" + text
			}
		}
		return table.Write(row)
	}
	factors := slices.Sorted(maps.Keys(s.Benchmark.Factors))
	header := slices.Clone(columns[0])
	for _, name := range factors {
		if slices.Contains(slices.Concat(columns[0], columns[1]), name) {
			name = "factor_" + name
		}
		header = append(header, name)
	}
	if err := write(append(header, columns[1]...)); err != nil {
		return err
	}
	for _, t := range s.Trials {
		if t.Block == 0 {
			continue
		}
		for _, a := range attempts[t.Number] {
			row := append([]string{s.Name, t.String()}, stats.Map(factors, func(f string) string { return t.Cell[f] })...)
			row = append(row, strconv.Itoa(t.Block), strconv.Itoa(t.Number), strconv.Itoa(a.Number), a.State, strings.Join(a.Reasons, "; "))
			for _, values := range []map[string]float64{a.Result.Metrics, listOthers(a)} {
				for _, name := range slices.Sorted(maps.Keys(values)) {
					if err := write(append(row[:len(row):len(row)], name, format(values[name]))); err != nil {
						return err
					}
				}
			}
		}
	}
	table.Flush()
	return table.Error()
}

// listOthers returns the values of an attempt that are no metrics.
func listOthers(a bench.Attempt) map[string]float64 {
	out := map[string]float64{"complete": 0}
	if a.Result.Complete {
		out["complete"] = 1
	}
	for _, r := range a.Requests {
		out[r.Name()] += float64(r.Count)
	}
	if a.Noise != nil {
		for name, value := range a.Noise.Figures() {
			out["noise "+name] = value
		}
	}
	return out
}

// format returns a number as text, with the digits that are needed to parse exactly the same number from the text.
func format(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e15 {
		return fmt.Sprintf("%.0f", v)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
