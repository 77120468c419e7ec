package export

import (
	"encoding/csv"
	"io"
	"maps"
	"slices"
	"strconv"
)

// CSV writes a table with one row per trial and metric, and per trial and kind of request. Its columns are the sweep, the cell, its levels of the
// factors, and what identifies the trial. A trial without metrics has no row.
func CSV(w io.Writer, s Sweep) error {
	table := csv.NewWriter(w)
	header := append([]string{"sweep", "cell"}, s.factorNames(func(n string) string { return n })...)
	if err := table.Write(append(header, "block", "order", "attempt", "verdict", "metric", "value")); err != nil {
		return err
	}
	for _, t := range s.Trials {
		levels, err := s.levels(t)
		if err != nil {
			return err
		}
		trial := append([]string{s.Name, t.Cell}, levels...)
		trial = append(trial, strconv.Itoa(t.Block), strconv.Itoa(t.Order), strconv.Itoa(t.Attempt), t.Verdict)
		for _, name := range t.metricNames() {
			if err := table.Write(append(trial[:len(trial):len(trial)], name, format(t.Metrics[name]))); err != nil {
				return err
			}
		}
		for _, name := range slices.Sorted(maps.Keys(t.Requests)) {
			if err := table.Write(append(trial[:len(trial):len(trial)], name, format(t.Requests[name]))); err != nil {
				return err
			}
		}
	}
	table.Flush()
	return table.Error()
}
