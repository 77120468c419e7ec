package results

import (
	"fmt"
	"maps"
	"strings"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/page"
	"github.com/nixbench/nixbench/bench/stats"
)

// Ratio is the ratio of the medians of a metric in two cells.
type Ratio struct {
	Cell  map[string]string `json:"cell"`            // the levels that both cells have
	Nodes int               `json:"nodes,omitempty"` // for a calibration: the number of nodes that run jobs, in both cells
	stats.Comparison
}

// Comparison contains the differences between two sweeps, and the ratios of the second sweep's results to those of the first.
type Comparison struct {
	X           string             `json:"-"` // the id of the first sweep
	Y           string             `json:"-"`
	Differences []bench.Difference `json:"differences"`
	Causes      int                `json:"causes"`
	Ratios      []Ratio            `json:"ratios"`
	Calibration []Ratio            `json:"calibration"` // ratios of results with hollow nodes to results with machines, if nothing else differs
	hollow      bool               // whether hollow nodes are compared with machines
}

// Compare compares the cells that two sweeps have in common.
func Compare(x, y *bench.Store) (Comparison, error) {
	c := Comparison{
		X: x.Sweep.ID, Y: y.Sweep.ID, Differences: bench.Compare(x.Sweep, y.Sweep), Calibration: []Ratio{}, hollow: comparesHollow(x.Sweep, y.Sweep),
	}
	attemptsX, err := x.AllAttempts()
	if err != nil {
		return c, err
	}
	attemptsY, err := y.AllAttempts()
	if err != nil {
		return c, err
	}
	c.Differences = append(c.Differences, bench.CompareResults(x.Sweep, y.Sweep, attemptsX, attemptsY, c.Differences)...)
	c.Causes = bench.CountCauses(c.Differences)
	before, _ := summarise(x.Sweep, attemptsX)
	after, _ := summarise(y.Sweep, attemptsY)
	for _, cell := range before.Cells {
		c.Ratios = append(c.Ratios, compareCells(after, cell, before, cell)...)
	}
	var all []*stats.Comparison
	for i := range c.Ratios {
		all = append(all, &c.Ratios[i].Comparison)
	}
	stats.Holm(all)
	if c.hollow && isCalibration(c.Differences) {
		c.Calibration = calibrateBetween(x.Sweep, before, y.Sweep, after)
	}
	return c, nil
}

// compareCells returns the ratios of the main metrics of two cells.
func compareCells(a page.Input, cellA map[string]string, b page.Input, cellB map[string]string) []Ratio {
	var out []Ratio
	x, y := samplesOf(a, cellA), samplesOf(b, cellB)
	for _, metric := range page.MainMetrics {
		if c, ok := stats.Ratio(x, y, metric); ok {
			out = append(out, Ratio{Cell: cellA, Comparison: c})
		}
	}
	return out
}

// String returns how the sweeps differ, and whether a difference between their results has a single cause.
func (c Comparison) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s against %s\n\n", c.Y, c.X)
	switch {
	case c.hollow && len(c.Calibration) > 0:
		b.WriteString("the sweeps differ in their hollow nodes only:\n")
	case c.hollow:
		b.WriteString("confounded: the nodes of one sweep are machines and those of the other are hollow, so a ratio shows the error of hollow nodes, too:\n")
	case len(c.Differences) == 0:
		b.WriteString("the sweeps are equal: systems, workloads, order and computer\n")
	case c.Causes == 1:
		b.WriteString("the sweeps differ in one thing:\n")
	default:
		fmt.Fprintf(&b, "confounded: the sweeps differ in %d things, so a difference between the results has no single cause:\n", c.Causes)
	}
	for _, d := range c.Differences {
		fmt.Fprintf(&b, "  %s: %s | %s", d.What, d.A, d.B)
		if d.Follows {
			b.WriteString(" (follows from another difference)")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// Tables returns the table of the ratios of hollow nodes to machines. If there are no such ratios, it returns the tables of all ratios.
func (c Comparison) Tables() []page.Table {
	if len(c.Calibration) > 0 {
		return calibrationTables(c.Calibration)
	}
	t := page.Table{Head: []string{"CELL", "METRIC", "RATIO", "ANSWER"}}
	for _, r := range c.Ratios {
		t.Rows = append(t.Rows, []string{bench.FormatCell(r.Cell), r.Metric, r.text(), r.Answer})
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return []page.Table{t}
}

// text returns the text of the ratio, or a dash if the ratio is unknown.
func (r Ratio) text() string {
	if r.Comparison.Ratio == 0 {
		return "–"
	}
	return fmt.Sprintf("%.3g", r.Comparison.Ratio)
}

// calibrateWithin compares each cell with hollow nodes with the cell of the same sweep that has as many machines, and equal other levels.
func calibrateWithin(s bench.Sweep, in page.Input) []Ratio {
	out := []Ratio{}
	for _, hollow := range in.Cells {
		for _, machines := range in.Cells {
			same := withoutSizes(hollow)
			if isHollow(s, hollow) && !isHollow(s, machines) && maps.Equal(same, withoutSizes(machines)) {
				out = append(out, calibrate(in, hollow, in, machines, same)...)
			}
		}
	}
	return out
}

// calibrateBetween compares each cell of one sweep that has hollow nodes with the same cell of the other sweep, if it has as many machines.
func calibrateBetween(x bench.Sweep, before page.Input, y bench.Sweep, after page.Input) []Ratio {
	out := []Ratio{}
	for _, cell := range before.Cells {
		switch {
		case isHollow(x, cell) && !isHollow(y, cell):
			out = append(out, calibrate(before, cell, after, cell, cell)...)
		case isHollow(y, cell) && !isHollow(x, cell):
			out = append(out, calibrate(after, cell, before, cell, cell)...)
		}
	}
	return out
}

// calibrate compares a cell with hollow nodes with a cell with machines, unless their numbers of nodes differ. same has the levels that
// both cells have.
func calibrate(in page.Input, hollow map[string]string, other page.Input, machines, same map[string]string) []Ratio {
	n := nodesOf(in, hollow)
	if n == 0 || n != nodesOf(other, machines) {
		return nil
	}
	out := compareCells(in, hollow, other, machines)
	for i := range out {
		out[i].Cell, out[i].Nodes = same, n
	}
	return out
}

// nodesOf returns the number of nodes in the trials of a cell, or 0 if the cell has no trials.
func nodesOf(in page.Input, cell map[string]string) int {
	for _, t := range in.Trials {
		if maps.Equal(t.Cell, cell) {
			return t.Nodes
		}
	}
	return 0
}

// withoutSizes returns a copy of a cell without the factors that set the number of nodes of a role.
func withoutSizes(cell map[string]string) map[string]string {
	out := maps.Clone(cell)
	maps.DeleteFunc(out, func(f, _ string) bool {
		return strings.HasPrefix(f, "roles.") && (strings.HasSuffix(f, ".count") || strings.HasSuffix(f, ".hollow"))
	})
	return out
}

// isCalibration reports whether hollow nodes are the only cause of the differences between two sweeps.
func isCalibration(differences []bench.Difference) bool {
	for _, d := range differences {
		if !d.Follows && d.What != bench.ArgumentsOfSet && !strings.HasPrefix(d.What, "the hollow nodes of ") {
			return false
		}
	}
	return true
}

// calibrationTables returns the table of the ratios of hollow nodes to machines, or no table if there are no ratios.
func calibrationTables(all []Ratio) []page.Table {
	if len(all) == 0 {
		return nil
	}
	t := page.Table{
		Title: "Calibration: ratio of the medians of hollow nodes to those of as many machines",
		Head:  []string{"NODES", "CELL", "METRIC", "RATIO", "95 % INTERVAL", "ANSWER"},
	}
	for _, c := range all {
		interval := "-"
		if c.Interval != nil {
			interval = fmt.Sprintf("%.3g to %.3g", c.Interval.Low, c.Interval.High)
		}
		t.Rows = append(t.Rows, []string{fmt.Sprint(c.Nodes), bench.FormatCell(c.Cell), c.Metric, c.text(), interval, c.Answer})
	}
	return []page.Table{t}
}
