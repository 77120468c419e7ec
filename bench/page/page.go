// Package page writes one self-contained HTML page about a sweep. The page contains its style and drawings, has no scripts and loads no
// other files. html/template escapes all texts; no text of a hive or a sweep is marked as safe.
package page

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/stats"
)

// Input is the content of a page.
type Input struct {
	Sweep   bench.Sweep
	Name    string              // machines or hollow nodes, if the sweep has cells of both kinds, else empty
	Cells   []map[string]string // the cells in the order of the page; each is a map of factors to levels
	Trials  []Trial
	Failed  []Trial // attempts without a result
	Engines string  // the schedulers with their versions
	Claims  []stats.ClaimResult
	Systems []bench.LevelDifference
	Notes   []string // what readers must know, such as: confounded with time
}

// Trial is a trial of the sweep, with one of its attempts. The cell of the trial must be in Input.Cells.
type Trial struct {
	stats.Sample
	bench.Attempt
}

//go:embed page.html
var pageHTML string

// plotHTML has the templates of the plots in the HTML page and in separate SVG files.
//
//go:embed plot.html
var plotHTML string

//go:embed page.css
var style string

// fact is a line of the template `facts`, which shows a list of names with texts.
type fact struct {
	Name, Text string
	Code       bool
}

// tick is a mark on an axis. At is its position, in the format of [percent].
type tick struct{ At, Anchor, Text string }

func Render(w io.Writer, in Input) error { return execute(w, plotHTML+pageHTML, newView(in)) }

// execute executes a template, and writes its output completely, or nothing.
func execute(w io.Writer, text string, content any) error {
	t, err := template.New("page").Funcs(template.FuncMap{"style": func() template.CSS { return template.CSS(style) }}).Parse(text)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, content); err != nil {
		return err
	}
	_, err = w.Write(b.Bytes())
	return err
}

// view is the input of the template: texts and positions. The template computes nothing.
type view struct {
	Sweep     bench.Sweep
	Facts     []fact
	Counts    []count
	Notes     []string
	Before    []Table // before the drawings
	Workloads []workload
	After     []Table
	All       Table // the means of all metrics
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
		Sweep: in.Sweep, Facts: listFacts(in, a), Counts: countVerdicts(in.Trials), Notes: in.Notes,
		Before: keepFilled(a.listClaims(in.Claims), means), Workloads: drawWorkloads(a),
		After: keepFilled(ratios, noise, a.listLimits(true), a.listSystems(in.Systems), a.listReasons(slices.Concat(in.Failed, in.Trials))),
		All:   all,
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

func listFacts(in Input, a analysis) []fact {
	out := []fact{
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
	return slices.DeleteFunc(out, func(f fact) bool { return f.Text == "" })
}

func countVerdicts(trials []Trial) []count {
	out := stats.Map([]string{bench.Valid, bench.Suspect, bench.Invalid}, func(verdict string) count {
		return count{len(stats.Keep(trials, func(t Trial) bool { return t.State == verdict })), verdict}
	})
	return stats.Keep(out, func(c count) bool { return c.N > 0 })
}
