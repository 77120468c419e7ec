package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// A metric is a quantity that is measured in each run of a deploy tool.
type metric string

const (
	wall       metric = "wall time, s"
	nodeCPU    metric = "processor time of all nodes, s"
	hereCPU    metric = "processor time here, s"
	hereMemory metric = "memory of the largest process here, MB"
	programs   metric = "programs started on a node"
)

var metrics = []metric{wall, nodeCPU, hereCPU, hereMemory, programs}

// figures contains the values of one run of a deploy tool. A metric that was not measured is missing.
type figures map[metric]float64

// median returns the median of a metric. The second result is false if a run does not have the metric.
func median(runs []figures, m metric) (float64, bool) {
	var values []float64
	for _, r := range runs {
		if v, ok := r[m]; ok {
			values = append(values, v)
		}
	}
	if len(values) == 0 || len(values) < len(runs) {
		return 0, false
	}
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2, true
}

// printTable prints the medians of each tool, and the ratios of the first tool's medians to those of the second tool.
func printTable(w io.Writer, title string, tools []*tool, runs map[string][]figures) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	header := []string{title}
	for _, t := range tools {
		header = append(header, t.label)
	}
	fmt.Fprintln(table, strings.Join(append(header, "ratio"), "\t"))
	for _, m := range metrics {
		row, values := []string{"  " + string(m)}, []float64{}
		for _, t := range tools {
			text := "-"
			if v, ok := median(runs[t.label], m); ok {
				text, values = strconv.FormatFloat(v, 'f', 2, 64), append(values, v)
			}
			row = append(row, text)
		}
		if len(values) == 0 {
			continue
		}
		if len(values) == 2 && values[1] > 0 {
			row = append(row, strconv.FormatFloat(values[0]/values[1], 'f', 2, 64))
		}
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	fmt.Fprintln(table)
	return table.Flush()
}
