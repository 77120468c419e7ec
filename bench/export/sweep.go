// Package export writes the results of a sweep in the formats of other programs: CSV with one observation per row, the benchmark format of
// Go, the Standard Workload Format, and the metadata of an RO-Crate.
//
// All writers write trials in their order in the sweep, and sort everything that has no order, so that equal sweeps have equal files.
package export

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/nixbench/nixbench/bench/workload"
)

// Sweep is a set of trials of the cells of an experiment.
type Sweep struct {
	Name    string
	ID      string
	Version string // of nixbench
	License string // address of the licence of the results; empty: none is named
	Started time.Time
	Ended   time.Time
	Factors []Factor
	Cells   []Cell
	Trials  []Trial
	Files   []File
}

// Factor is what differs between cells, such as the number of nodes.
type Factor struct {
	Name   string
	Levels []string
}

// Cell is a combination of levels.
type Cell struct {
	Name   string
	Levels map[string]string // by the name of the factor
}

// Trial is one run of a cell.
type Trial struct {
	Cell    string
	Block   int
	Order   int      // in the sweep
	Attempt int      // 1: the first
	Verdict string   // valid, suspect or invalid
	Reasons []string // of the verdict. Only the CSV contains them
	// Noise has the figures of the computer during the trial, by their names. Only the CSV contains them.
	Noise   map[string]float64
	Started time.Time
	Ended   time.Time
	Metrics map[string]float64
	// Requests has the number of each kind of request, by its name. Only the CSV contains it.
	Requests map[string]float64
	Events   string // path of the file with the events, relative to the folder of the sweep
	Jobs     []Job
}

// Job is a job of a trial with what was measured. Times are in seconds after the start of the trial; nil: it was not observed.
type Job struct {
	workload.Job
	Submitted *float64
	Started   *float64
	Ended     *float64
	Failed    bool // it has ended with an error, or was refused
}

// File is a file of the sweep.
type File struct {
	Path   string // relative to the folder of the sweep, with slashes
	Size   int64
	SHA256 string // hexadecimal
}

// ownColumns are the names that factors cannot have in tables and labels.
var ownColumns = []string{"sweep", "sweep_id", "cell", "block", "order", "attempt", "verdict", "reasons", "metric", "value"}

// factorNames returns the names of the factors as columns, after clean has changed each. A name that is already in use gets a prefix.
func (s Sweep) factorNames(clean func(string) string) []string {
	used := map[string]bool{}
	for _, c := range ownColumns {
		used[c] = true
	}
	var out []string
	for _, f := range s.Factors {
		out = append(out, unique(clean(f.Name), "factor_", used))
	}
	return out
}

// unique returns a name that is not used, and marks it as used.
func unique(name, prefix string, used map[string]bool) string {
	if used[name] {
		name = prefix + name
	}
	free := name
	for n := 2; used[free]; n++ {
		free = name + "_" + strconv.Itoa(n)
	}
	used[free] = true
	return free
}

// levels returns the levels of a trial in the order of the factors.
func (s Sweep) levels(t Trial) ([]string, error) {
	i := slices.IndexFunc(s.Cells, func(c Cell) bool { return c.Name == t.Cell })
	if i < 0 {
		return nil, fmt.Errorf("export: the sweep %s has no cell %s, of which it has a trial", s.ID, t.Cell)
	}
	var out []string
	for _, f := range s.Factors {
		level, ok := s.Cells[i].Levels[f.Name]
		if !ok {
			return nil, fmt.Errorf("export: the cell %s has no level of the factor %s", t.Cell, f.Name)
		}
		out = append(out, level)
	}
	return out, nil
}

// metricNames returns the sorted names of the metrics of a trial.
func (t Trial) metricNames() []string { return slices.Sorted(maps.Keys(t.Metrics)) }

// format writes a number with as many digits as identify it.
func format(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "+Inf"
	case v == math.Trunc(v) && math.Abs(v) < 1e15:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
