package deployments

import (
	"fmt"
	"slices"
)

// A metric is a quantity that is measured for each run of a scenario.
type metric string

const (
	wall          metric = "wallSeconds"
	logins        metric = "loginsPerNode"    // of the node with the most logins
	programs      metric = "programsPerNode"  // calls of execve on the nodes, on average
	processes     metric = "processesPerNode" // processes created on the nodes, on average, also those without an execve
	nodeCPU       metric = "nodeCPUSeconds"   // of all nodes together
	operatorCPU   metric = "operatorCPUSeconds"
	operatorExecs metric = "operatorPrograms"
	operatorRead  metric = "operatorReadBytes"
	storeOpens    metric = "storeFileOpens"
	timesOne      metric = "timesOneNode" // wall time for all nodes, divided by that for one node
)

// metrics contains all metrics in the order of the table.
var metrics = []struct {
	metric metric
	title  string
	format func(float64) string
}{
	{wall, "wall time", formatSeconds},
	{timesOne, "wall time / wall time for one node", formatRatio},
	{nodeCPU, "processor time of all nodes", formatSeconds},
	{operatorCPU, "processor time here", formatSeconds},
	{logins, "logins on a node", formatCount},
	{programs, "programs started on a node", formatCount},
	{processes, "processes created on a node", formatCount},
	{operatorExecs, "programs started here", formatCount},
	{operatorRead, "read here: files, pipes, sockets", formatMegabytes},
	{storeOpens, "opens of the large file", formatCount},
}

// figures contains the measured values of one run. A metric that was not measured is missing.
type figures map[metric]float64

// takeMedians returns the median of each metric over several runs. It contains the metrics that all runs have.
func takeMedians(runs []figures) figures {
	out := figures{}
	for _, m := range metrics {
		var values []float64
		for _, r := range runs {
			if v, ok := r[m.metric]; ok {
				values = append(values, v)
			}
		}
		if len(values) > 0 && len(values) == len(runs) {
			out[m.metric] = median(values)
		}
	}
	return out
}

// median returns the middle value, or the mean of the two middle values. values must not be empty.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

func formatSeconds(v float64) string   { return fmt.Sprintf("%.2f s", v) }
func formatRatio(v float64) string     { return fmt.Sprintf("%.2f", v) }
func formatMegabytes(v float64) string { return fmt.Sprintf("%.0f MB", v/1e6) }

func formatCount(v float64) string {
	if v == float64(int64(v)) {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f", v)
}
