package results

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/page"
	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/deploy/failure"
)

// Check is what one short trial of each cell says about a benchmark.
type Check struct {
	Cells    []CheckedCell `json:"cells"`
	Duration Duration      `json:"duration"` // of a sweep of the benchmark, from these trials
}

// CheckedCell is the trial of a cell.
type CheckedCell struct {
	Cell    map[string]string `json:"cell"`
	State   string            `json:"state"`
	Seconds float64           `json:"seconds"` // that the trial took, with its deployment
	Limited []string          `json:"limited"` // what limits the result, such as places
	Reasons []string          `json:"reasons"` // why the result is suspect, invalid or missing
	name    string            // of the cell
}

// NewCheck reads the attempts of a sweep with one block, whose trials were not repeated. The cells have the order of the benchmark.
func NewCheck(st *bench.Store) (c Check, err error) {
	all, err := st.AllAttempts()
	cells := st.Sweep.Benchmark.Cells
	for _, cell := range cells {
		for _, t := range st.Sweep.Trials {
			if !maps.Equal(t.Cell, cell) {
				continue
			}
			for _, a := range all[t.Number] {
				c.Cells = append(c.Cells, CheckedCell{cell, a.State, a.Ended.Sub(a.Began).Seconds(), append([]string{}, a.Limited...), append([]string{}, a.Reasons...), bench.NameCell(cells, cell)})
			}
		}
	}
	return c, err
}

func (c Check) Table() page.Table {
	t := page.Table{Head: []string{"CELL", "STATE", "TOOK", "LIMITED BY", "REASON"}}
	for _, cell := range c.Cells {
		t.Rows = append(t.Rows, []string{cell.name, cell.State, formatSeconds(cell.Seconds), strings.Join(cell.Limited, ", "), strings.Join(cell.Reasons, "; ")})
	}
	return t
}

// Problems returns an error if the trial of a cell has no result that counts.
func (c Check) Problems() error {
	var without []string
	for _, cell := range c.Cells {
		if !slices.Contains([]string{bench.Valid, bench.Suspect}, cell.State) {
			without = append(without, cell.name)
		}
	}
	if len(without) == 0 {
		return nil
	}
	return failure.WithKind(failure.Check, fmt.Errorf("%d of %d cells have no result: %s", len(without), len(c.Cells), strings.Join(without, ", ")))
}

func formatSeconds(s float64) string {
	return workload.Seconds(s).Round(time.Second).String()
}
