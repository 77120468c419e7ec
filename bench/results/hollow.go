package results

import (
	"slices"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/page"
	"github.com/nixbench/nixbench/bench/stats"
)

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
// table, no drawing and no claim compares both kinds of cells. If all cells are of one kind, it returns one part. Each part has its claims
// and notes. all are the attempts of the sweep. baselines has the samples of the sweeps that claims name as baselines, by id.
func splitHollow(in page.Input, all map[int][]bench.Attempt, baselines map[string][]stats.Sample) (parts []page.Input) {
	s := in.Sweep
	for i, name := range []string{"machines", "hollow nodes"} {
		of := func(cell map[string]string) bool { return isHollow(s, cell) == (i == 1) }
		ofTrial := func(t page.Trial) bool { return of(t.Cell) }
		p := in
		p.Name, p.Cells, p.Trials, p.Failed = name, stats.Keep(in.Cells, of), stats.Keep(in.Trials, ofTrial), stats.Keep(in.Failed, ofTrial)
		p.Systems = stats.Keep(in.Systems, func(d bench.LevelDifference) bool { return of(d.A) && of(d.B) })
		p.Notes = slices.Concat(s.DescribeTuning(all, of), describeLimited(p), listNotes(p, all, of))
		p.Claims = evaluateClaims(s, p.Trials, baselines)
		if len(p.Cells) > 0 || i == 1 && parts == nil {
			parts = append(parts, p)
		}
	}
	if len(parts) == 1 {
		parts[0].Name = ""
		return parts
	}
	parts[0].Notes = append(parts[0].Notes, "The nodes of these cells are machines. Cells with hollow nodes are shown separately: a comparison would be confounded.")
	parts[1].Notes = append(parts[1].Notes, "The nodes of these cells are hollow.")
	// A claim about cells of one part is only in this part.
	isAbout := func(c stats.ClaimResult) bool { return len(c.Parts) > 0 }
	parts[1].Claims = stats.Keep(parts[1].Claims, isAbout)
	parts[0].Claims = stats.Keep(parts[0].Claims, func(c stats.ClaimResult) bool {
		return isAbout(c) || !slices.ContainsFunc(parts[1].Claims, func(other stats.ClaimResult) bool { return other.Name == c.Name })
	})
	return parts
}
