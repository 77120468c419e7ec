package results

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/page"
	"github.com/nixbench/nixbench/bench/stats"
)

// Ratio is the ratio of a metric in two cells.
type Ratio struct {
	Cell  map[string]string `json:"cell"`            // the levels that both cells have
	Nodes int               `json:"nodes,omitempty"` // for a calibration: the number of nodes that run jobs, in both cells
	stats.Comparison
}

// Comparison contains the differences between two groups of sweeps, and the ratios of the second group's results to those of the first.
type Comparison struct {
	Sweeps      [2][]string        `json:"sweeps"`      // the ids of both groups
	Differences []bench.Difference `json:"differences"` // between the first sweeps of the groups, and within the groups
	Causes      int                `json:"causes"`
	Ratios      []Ratio            `json:"ratios"`
}

// Compare compares the cells that two groups of sweeps have in common. Each sweep is one observation: its trials share the state of the
// computer on its day.
func Compare(x, y []*bench.Store) (Comparison, error) {
	c := Comparison{Ratios: []Ratio{}}
	var inputs [2][]page.Input
	var attempts [2][]map[int][]bench.Attempt
	for side, group := range [][]*bench.Store{x, y} {
		for _, st := range group {
			all, err := st.AllAttempts()
			if err != nil {
				return c, err
			}
			in := summarise(st.Sweep, all)
			inputs[side], attempts[side] = append(inputs[side], in), append(attempts[side], all)
			c.Sweeps[side] = append(c.Sweeps[side], st.Sweep.ID)
			for _, d := range bench.Compare(group[0].Sweep, st.Sweep) {
				d.What += " within a side, in " + st.Sweep.ID
				c.Differences = append(c.Differences, d)
			}
		}
	}
	between := bench.Compare(x[0].Sweep, y[0].Sweep)
	between = append(between, bench.CompareResults(x[0].Sweep, y[0].Sweep, attempts[0][0], attempts[1][0], between)...)
	c.Differences = append(between, c.Differences...)
	c.Causes = bench.CountCauses(c.Differences)
	var all []*stats.Comparison
	for _, cell := range inputs[0][0].Cells {
		for _, metric := range page.MainMetrics {
			var samples [2][][]stats.Sample
			for side := range inputs {
				for _, in := range inputs[side] {
					samples[side] = append(samples[side], samplesOf(in, cell))
				}
			}
			if r, ok := stats.RatioOfSweeps(samples[1], samples[0], metric); ok {
				c.Ratios = append(c.Ratios, Ratio{Cell: cell, Comparison: r})
			}
		}
	}
	for i := range c.Ratios {
		if c.Ratios[i].Interval != nil {
			all = append(all, &c.Ratios[i].Comparison)
		}
	}
	stats.Holm(all, stats.Level)
	return c, nil
}

// String returns how the sweeps differ, and whether a difference between their results has a single cause.
func (c Comparison) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s against %s\n\n", strings.Join(c.Sweeps[1], ", "), strings.Join(c.Sweeps[0], ", "))
	switch {
	case slices.ContainsFunc(c.Differences, func(d bench.Difference) bool {
		return strings.HasPrefix(d.What, "the hollow nodes of ") && (d.A == "0" || d.B == "0")
	}):
		b.WriteString("confounded: the nodes of one sweep are machines and those of the other are hollow, so a ratio shows the error of hollow nodes, too; measure both in one sweep:\n")
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

func (c Comparison) Tables() []page.Table {
	tables := ratioTables("", c.Ratios)
	if i := slices.IndexFunc(c.Ratios, func(r Ratio) bool { return r.Interval == nil }); i >= 0 {
		tables[0].Note = "– " + c.Ratios[i].Reason + ": nixbench bench compare A1,A2,A3 B1,B2,B3. Levels of one sweep are compared without this."
	}
	return tables
}

// ratioTables returns a table of ratios, or no table if there are none.
func ratioTables(title string, all []Ratio) []page.Table {
	if len(all) == 0 {
		return nil
	}
	cells := stats.Map(all, func(r Ratio) map[string]string { return r.Cell })
	head := []string{"NODES", "CELL", "METRIC", "RATIO", "95 % INTERVAL", "ANSWER"}
	rows := stats.Map(all, func(r Ratio) []string {
		return []string{fmt.Sprint(r.Nodes), bench.NameCell(cells, r.Cell), r.Metric, page.FormatRatio(r.Comparison.Ratio), page.FormatInterval(r.Interval), r.Answer}
	})
	if all[0].Nodes == 0 { // these are ratios of sweeps
		head = head[1:]
		rows = stats.Map(rows, func(row []string) []string { return row[1:] })
	}
	return []page.Table{{Title: title, Head: head, Rows: rows}}
}

// calibrateWithin compares each cell with hollow nodes with the cell of the same sweep that has as many machines, and equal other levels.
func calibrateWithin(s bench.Sweep, in page.Input) []Ratio {
	out := []Ratio{}
	for _, hollow := range in.Cells {
		for _, machines := range in.Cells {
			same, n := withoutSizes(hollow), countNodes(in, hollow)
			if !isHollow(s, hollow) || isHollow(s, machines) || !maps.Equal(same, withoutSizes(machines)) || n == 0 || n != countNodes(in, machines) {
				continue
			}
			for _, metric := range page.MainMetrics {
				if c, ok := stats.Ratio(samplesOf(in, hollow), samplesOf(in, machines), metric); ok {
					out = append(out, Ratio{Cell: same, Nodes: n, Comparison: c})
				}
			}
		}
	}
	return out
}

// countNodes returns the number of nodes in each trial of a cell, or 0 if the cell has no trials.
func countNodes(in page.Input, cell map[string]string) int {
	for _, t := range in.Trials {
		if maps.Equal(t.Cell, cell) {
			return t.Result.Nodes
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
