package page

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/stats"
)

// view is the input of the template: texts and positions. The template computes nothing.
type view struct {
	Sweep     string
	Of        bench.Sweep
	Facts     []Fact
	Counts    []count
	Notes     []string
	Before    []Table // before the drawings
	Workloads []workload
	After     []Table
	Details   []Table // tables with many rows
}

type count struct {
	N       int
	Verdict string
}

// workload is the drawings of the cells with one workload.
type workload struct {
	Name  string
	Plots []plot
}

func newView(in Input) view {
	a := analyse(in)
	trials := slices.SortedStableFunc(slices.Values(in.Trials), func(a, b Trial) int { return cmp.Compare(a.Order, b.Order) })
	means, ratios, noise := a.listMeans(a.metrics), a.listRatios(), a.listNoise()
	var samples []stats.Sample
	for _, g := range a.cells {
		samples = append(samples, g.Samples...)
	}
	all := a.listMeans(allMetrics(samples))
	means.Note = "Geometric means of all trials that are not invalid, with 95 % intervals of the t-test of logarithms. Fewer than three blocks, and values of 0 or less, allow no interval."
	ratios.Note = "Geometric means of the ratios in each block, with 95 % intervals. The comparison of a claim has a test of its own; the primary ones, and the exploratory ones, are corrected for their number (Holm)."
	noise.Note += " The noise of a trial is its standard deviation, without what the trials of a block share. A comparison finds the visible ratio with a probability of 80 %."
	all.Title = "All metrics"
	return view{
		Sweep: in.Sweep.ID, Of: in.Sweep, Facts: listFacts(in, a), Counts: countVerdicts(in.Trials), Notes: in.Notes,
		Before: keepFilled(a.listClaims(in.Claims), means), Workloads: drawWorkloads(a),
		After:   keepFilled(ratios, noise, a.listLimits(true), a.listSystems(in.Systems), a.listReasons(slices.Concat(in.Failed, trials))),
		Details: keepFilled(all, a.listFigures(trials, in.Sweep.Benchmark.Quiet)),
	}
}

func drawWorkloads(a analysis) (out []workload) {
	f := a.axis()
	for _, g := range a.cells {
		w := workload{Name: g.Cell[bench.WorkloadFactor]}
		if slices.ContainsFunc(out, func(other workload) bool { return other.Name == w.Name }) {
			continue
		}
		cells := stats.Keep(a.cells, func(g stats.Group) bool { return g.Cell[bench.WorkloadFactor] == w.Name })
		for _, m := range a.metrics {
			if p, ok := a.plotResults(cells, f, m); ok {
				w.Plots = append(w.Plots, p)
			}
		}
		out = append(out, w)
	}
	return out
}

func listFacts(in Input, a analysis) []Fact {
	out := []Fact{
		{Name: "Description", Text: in.Sweep.Description},
		{Name: "Started", Text: in.Sweep.Created.UTC().Format("2006-01-02 15:04:05 UTC")},
		{Name: "Trials", Text: fmt.Sprintf("%d in %d blocks, %d cells", len(in.Trials), in.Sweep.Benchmark.Repetitions, len(in.Cells))},
		{Name: "Schedulers", Text: in.Engines},
		{Name: "Order", Text: in.Sweep.Benchmark.Order},
		{Name: "Seed", Text: fmt.Sprint(in.Sweep.Benchmark.Seed), Code: true},
		{Name: "In all cells", Text: stats.JoinLevels(a.same, ", ")},
		{Name: "Revision of the hive", Text: in.Sweep.Revision, Code: true},
		{Name: "Version of nixbench", Text: in.Sweep.Nixbench, Code: true},
	}
	return slices.DeleteFunc(out, func(f Fact) bool { return f.Text == "" })
}

func countVerdicts(trials []Trial) []count {
	out := stats.Map([]string{bench.Valid, bench.Suspect, bench.Invalid}, func(verdict string) count {
		return count{len(stats.Keep(trials, func(t Trial) bool { return t.State == verdict })), verdict}
	})
	return stats.Keep(out, func(c count) bool { return c.N > 0 })
}
