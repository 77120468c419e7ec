package results

import (
	"slices"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/page"
	"github.com/nixbench/nixbench/bench/stats"
)

// isHollow reports whether a cell with these levels has hollow nodes: one machine stands for several hollow nodes.
func isHollow(s bench.Sweep, levels map[string]string) bool {
	return slices.ContainsFunc(s.Trials, func(t bench.Trial) bool {
		for f, level := range levels {
			if t.Cell[f] != level {
				return false
			}
		}
		return s.Configurations[t.Configuration].Hollow > 0
	})
}

// splitHollow returns the results of the cells whose nodes are machines, and then the results of the cells with hollow nodes, so that no
// table, no drawing and no claim compares both kinds of cells. If all cells are of one kind, it returns one part. Each part has its claims.
// baselines has the samples of the sweeps that claims name as baselines, by id.
func splitHollow(s bench.Sweep, in page.Input, baselines map[string][]stats.Sample) []page.Input {
	parts := []page.Input{in, in} // the results with machines, and the results with hollow nodes
	for i := range parts {
		of := func(cell map[string]string) bool { return isHollow(s, cell) == (i == 1) }
		parts[i].Cells = keep(in.Cells, of)
		parts[i].Trials = keep(in.Trials, func(t page.Trial) bool { return of(t.Cell) })
		parts[i].Limits = keep(in.Limits, func(l page.Limit) bool { return of(l.Cell) })
		parts[i].Systems = keep(in.Systems, func(d bench.LevelDifference) bool { return of(d.A) && of(d.B) })
	}
	if len(parts[0].Cells) == 0 || len(parts[1].Cells) == 0 {
		parts = []page.Input{in}
	} else {
		parts[0].Notes = append(slices.Clone(in.Notes), "The nodes of these cells are machines. Cells with hollow nodes are shown separately: a comparison would be confounded.")
		parts[1].Notes = append(slices.Clone(in.Notes), "The nodes of these cells are hollow.")
	}
	var claims [2][]stats.ClaimResult // by part, in the same order
	for i := range parts {
		claims[i] = evaluateClaims(s, parts[i].Trials, baselines)
		parts[i].Claims = claims[i]
	}
	if len(parts) == 2 { // a claim about cells of one part is only in this part
		for i := range parts {
			parts[i].Claims = nil
			for k, c := range claims[i] {
				if len(c.Parts) > 0 || len(claims[1-i][k].Parts) == 0 && i == 0 {
					parts[i].Claims = append(parts[i].Claims, c)
				}
			}
		}
	}
	return parts
}

// keep returns a new list of those values for which f returns true.
func keep[T any](all []T, f func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(v T) bool { return !f(v) })
}
