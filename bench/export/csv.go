package export

import (
	"encoding/csv"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nixbench/nixbench/bench"
)

// CSV writes a table of the values of all trials. A trial has one row for each metric, for each kind of request, and for each figure of
// its noise. The columns are the sweep, the cell, the levels of the factors, the numbers and the verdict of the trial, and the name and the
// value. A text that a spreadsheet would read as a formula gets a ' in front, because another user may have chosen the names.
func CSV(w io.Writer, s bench.Sweep, trials []Trial) error {
	table := csv.NewWriter(w)
	write := func(row []string) error {
		for i, text := range row {
			if _, err := strconv.ParseFloat(text, 64); err != nil && text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
				row[i] = "'" + text
			}
		}
		return table.Write(row)
	}
	header := append([]string{"sweep", "cell"}, columns(s)...)
	if err := write(append(header, "block", "order", "attempt", "verdict", "reasons", "metric", "value")); err != nil {
		return err
	}
	for _, t := range trials {
		a := t.Attempt
		trial := []string{s.Name, t.String()}
		for _, f := range factors(s) {
			trial = append(trial, t.Cell[f])
		}
		trial = append(trial, strconv.Itoa(t.Block), strconv.Itoa(t.Number), strconv.Itoa(a.Number), a.State, strings.Join(a.Reasons, "; "))
		for _, name := range t.metricNames() {
			if err := write(append(trial[:len(trial):len(trial)], name, format(a.Result.Metrics[name]))); err != nil {
				return err
			}
		}
		others := map[string]float64{}
		for _, r := range a.Requests {
			others[r.Name()] += float64(r.Count)
		}
		if a.Noise != nil {
			for name, value := range a.Noise.Figures() {
				others["noise "+name] = value
			}
		}
		for _, name := range slices.Sorted(maps.Keys(others)) {
			if err := write(append(trial[:len(trial):len(trial)], name, format(others[name]))); err != nil {
				return err
			}
		}
	}
	table.Flush()
	return table.Error()
}
