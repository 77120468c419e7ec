package main

import (
	"fmt"
	"io"
	"maps"
	"strings"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/page"
	"github.com/nixbench/nixbench/bench/stats"
	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
)

// calibration is the ratio of a metric with hollow nodes to that with as many machines.
type calibration struct {
	Cell  map[string]string `json:"cell"`  // the levels that both have
	Nodes int               `json:"nodes"` // nodes that run jobs, of both
	stats.Comparison
}

// calibrateWithin compares the cells of a sweep that have hollow nodes with those that have as many machines. Their other levels are equal.
func calibrateWithin(s bench.Sweep, in page.Input) []calibration {
	out := []calibration{}
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

// calibrateBetween compares the cells of a sweep that have hollow nodes with the same cells of another sweep that have as many machines.
func calibrateBetween(x bench.Sweep, before page.Input, y bench.Sweep, after page.Input) []calibration {
	out := []calibration{}
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

// calibrate compares a cell with hollow nodes with a cell with machines, unless the numbers of their nodes differ.
func calibrate(in page.Input, hollow map[string]string, other page.Input, machines, same map[string]string) []calibration {
	n := nodesOf(in, hollow)
	if n == 0 || n != nodesOf(other, machines) {
		return nil
	}
	var out []calibration
	for _, metric := range page.MainMetrics {
		if c, ok := stats.Ratio(samplesOf(in, hollow), samplesOf(other, machines), metric); ok {
			out = append(out, calibration{same, n, c})
		}
	}
	return out
}

// nodesOf returns the number of nodes in the trials of a cell, or 0 if it has none.
func nodesOf(in page.Input, cell map[string]string) int {
	for _, t := range in.Trials {
		if maps.Equal(t.Cell, cell) {
			return t.Nodes
		}
	}
	return 0
}

// withoutSizes returns a cell without the factors that decide how many nodes a role has.
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

// showCalibration writes the ratios of hollow nodes to machines, if there are any.
func showCalibration(w io.Writer, all []calibration) {
	if len(all) == 0 {
		return
	}
	fmt.Fprint(w, "Calibration: ratio of the medians of hollow nodes to those of as many machines\n\n")
	rows := []ui.Row{{"NODES", "CELL", "METRIC", "RATIO", "95 % INTERVAL", "ANSWER"}}
	for _, c := range all {
		interval := "-"
		if c.Interval != nil {
			interval = fmt.Sprintf("%.3g to %.3g", c.Interval.Low, c.Interval.High)
		}
		rows = append(rows, ui.Row{fmt.Sprint(c.Nodes), bench.FormatCell(c.Cell), c.Metric, formatRatio(c.Ratio), interval, c.Answer})
	}
	ui.Table(w, rows)
	fmt.Fprintln(w)
}
