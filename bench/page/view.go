package page

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/stats"
	"github.com/nixbench/nixbench/bench/trial"
	"github.com/nixbench/nixbench/deploy/report/frame"
)

// view is the input of the template: texts and positions. The template computes nothing.
type view struct {
	Sweep        string
	Facts        []frame.Fact
	Counts       []count
	Notes        []string
	Claims       Table
	Metrics      []trial.Metric // the columns of the table of medians
	Medians      []medianRow
	All          Table // all metrics of all cells
	Scaling      []scaling
	Ratios       []ratioGroup
	Margin       string
	Drift        []plot
	Cells        []series
	Strip        []stripCell
	Problems     Table // trials that are not valid
	Limits       Table
	Requests     Table
	Floor        []ratioView
	FloorSum     string
	Worst        []ratioView // for each metric, the ratio of Floor that is furthest from 1
	Systems      []bench.LevelDifference
	Undeclared   string
	Noise        []plot
	Figures      Table // the noise figures of all trials
	Progress     []plot
	Stages       []series
	Distribution []plot
}

type count struct {
	N       int
	Verdict string
}

type medianRow struct {
	Cell, Class, Trials string
	Values              []value
}

type value struct{ Median, Interval string }

type scaling struct {
	Factor string
	Plots  []plot
	Legend []series
}

type ratioView struct {
	Metric, Factor, A, B, Cell string
	Ratio, Interval, P, Answer string
	Class                      string
	Blocks                     int
	From, Width, At            string // positions of the bar that shows the interval
}

// ratioGroup is the comparisons of the levels of a factor.
type ratioGroup struct {
	Factor string
	Rows   []ratioView
}

type stripCell struct{ Letter, Class, Title string }

type limitView struct {
	Cell, Name, Value, Rate, Limited string
}

// newView computes all texts and positions of the page about a sweep.
func newView(in Input) view {
	a := analyse(in)
	v := view{
		Sweep: in.Sweep, Facts: listFacts(in), Counts: countVerdicts(in.Trials), Notes: in.Notes, Systems: in.Systems,
		Margin: fmt.Sprintf("±%.0f %%", 100*stats.Margin), Claims: listClaims(in),
	}
	var names []string
	for _, t := range a.all {
		if name := nameCell(t.Cell); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	v.Cells = makeSeries(names)
	v.addMedians(a)
	v.addScaling(a)
	for _, m := range a.metrics {
		if p, ok := a.plotDrift(m, v.Cells); ok {
			v.Drift = append(v.Drift, p)
		}
	}
	rows := viewRatios(a.ratios)
	for i, r := range rows {
		if i == 0 || r.Factor != rows[i-1].Factor {
			v.Ratios = append(v.Ratios, ratioGroup{Factor: r.Factor})
		}
		last := &v.Ratios[len(v.Ratios)-1]
		r.Factor = "" // the title contains the factor
		last.Rows = append(last.Rows, r)
	}
	v.Floor = viewRatios(a.floor)
	v.FloorSum, v.Worst = a.summariseFloor(), viewRatios(a.worstOfMetrics())
	v.Undeclared = noteUndeclared(in.Systems)
	v.addTrials(in.Trials)
	v.addNoise(in)
	v.Progress, v.Stages = a.plotProgress(), stageSeries()
	for _, d := range distributions {
		v.Distribution = append(v.Distribution, a.plotDistribution(d.name, d.of, v.Cells)...)
	}
	v.Limits.Head = []string{"Limit", "Value", "Rate", "Cells", ""}
	for _, l := range in.Limits {
		x := viewLimit(l, a.cells)
		v.Limits.Rows = append(v.Limits.Rows, []string{x.Name, x.Value, x.Rate, x.Cell, x.Limited})
	}
	v.Requests = viewRequests(in)
	return v
}

// addScaling draws the metrics by the levels of each factor whose levels are numbers.
func (v *view) addScaling(a analysis) {
	for _, f := range a.factors {
		if f.numbers == nil {
			continue
		}
		var names []string
		for _, g := range stats.GroupBy(a.base, f.name) {
			names = append(names, nameCell(g.Cell))
		}
		s := scaling{Factor: f.name, Legend: makeSeries(names)}
		for _, m := range a.metrics {
			if p, ok := a.plotScaling(f, m, s.Legend); ok {
				s.Plots = append(s.Plots, p)
			}
		}
		v.Scaling = append(v.Scaling, s)
	}
}

// listFacts returns the facts at the top of the page, such as the start and the number of trials.
func listFacts(in Input) []frame.Fact {
	blocks := map[int]bool{}
	for _, t := range in.Trials {
		blocks[t.Block] = true
	}
	out := []frame.Fact{
		{Name: "Started", Text: in.Started.UTC().Format("2006-01-02 15:04:05 UTC")},
		{Name: "Trials", Text: fmt.Sprintf("%d in %d blocks, %d cells", len(in.Trials), len(blocks), len(in.Cells))},
		{Name: "Order", Text: in.Order},
		{Name: "Seed", Text: fmt.Sprint(in.Seed), Code: true},
	}
	if in.Revision != "" {
		out = append(out, frame.Fact{Name: "Revision of the hive", Text: in.Revision, Code: true})
	}
	return out
}

// countVerdicts returns how many trials have each verdict (valid, suspect, invalid).
func countVerdicts(trials []Trial) []count {
	n := map[string]int{}
	for _, t := range trials {
		n[t.Verdict]++
	}
	var out []count
	for _, verdict := range []string{bench.Valid, bench.Suspect, bench.Invalid} {
		if n[verdict] > 0 {
			out = append(out, count{n[verdict], verdict})
		}
	}
	return out
}

func makeSeries(names []string) []series {
	var out []series
	for i, n := range names {
		out = append(out, series{n, seriesClass(i)})
	}
	return out
}

func classOf(names []series, name string) string {
	for _, s := range names {
		if s.Name == name {
			return s.Class
		}
	}
	return seriesClass(0)
}

// addMedians adds two tables: the medians of the main metrics of each cell, and the medians of all metrics of each cell.
func (v *view) addMedians(a analysis) {
	v.All.Head = []string{"Cell", "Metric", "Median", "95 % interval", "Trials"}
	for _, m := range a.metrics {
		v.Metrics = append(v.Metrics, describe(m))
	}
	for _, g := range a.cells {
		name := nameCell(g.Cell)
		row := medianRow{Cell: name, Class: classOf(v.Cells, name), Trials: countTrials(stats.Summary{Count: len(g.Samples), Incomplete: stats.CountIncomplete(g.Samples)})}
		for _, m := range a.metrics {
			x := value{Median: "–"}
			if s, ok := stats.Median(g.Samples, m); ok {
				x.Median = formatNumber(s.Median)
				if s.Interval != nil {
					x.Interval = formatInterval(s.Interval)
				}
			}
			row.Values = append(row.Values, x)
		}
		v.Medians = append(v.Medians, row)
		for _, m := range allMetrics(g.Samples) {
			if s, ok := stats.Median(g.Samples, m.Name); ok {
				v.All.Rows = append(v.All.Rows, []string{name, m.Name, formatUnit(s.Median, m.Name), formatInterval(s.Interval), countTrials(s)})
			}
		}
	}
}

// allMetrics returns the metrics of samples: first the metrics of the table of medians in its order, then the other ones by name. The
// makespan is included also if all trials are unfinished and have none, because the text of its median then tells this.
func allMetrics(samples []stats.Sample) []trial.Metric {
	have := map[string]bool{}
	if stats.CountIncomplete(samples) > 0 {
		have["makespan"] = true
	}
	for _, s := range samples {
		for m := range s.Metrics {
			have[m] = true
		}
	}
	var out []trial.Metric
	for _, m := range trial.Metrics {
		if have[m.Name] {
			out = append(out, m)
			delete(have, m.Name)
		}
	}
	for _, m := range slices.Sorted(maps.Keys(have)) {
		out = append(out, trial.Metric{Name: m})
	}
	return out
}

// anchor returns the alignment of the text of the tick at `at`: the texts of the first and of the last tick must stay within the drawing.
func anchor(at, first, last float64) string {
	switch at {
	case first:
		return "start"
	case last:
		return "end"
	}
	return "middle"
}

// viewRatios returns the rows of a table of ratios. The bars of all rows share a logarithmic scale, which has the ratio 1 in the middle.
func viewRatios(ratios []ratio) []ratioView {
	reach := math.Log(1.1)
	for _, r := range ratios {
		if r.Ratio > 0 {
			reach = max(reach, math.Abs(math.Log(r.Ratio)))
		}
		if i := r.Interval; i != nil {
			reach = max(reach, math.Abs(math.Log(i.Low)), math.Abs(math.Log(i.High)))
		}
	}
	at := func(v float64) float64 { return 50 + 48*math.Log(v)/reach }
	var out []ratioView
	for _, r := range ratios {
		class, _, _ := strings.Cut(r.Answer, " ")
		x := ratioView{
			Metric: r.Metric, Factor: r.factor, A: r.a, B: r.b, Cell: stats.Name(r.cell), Ratio: formatRatio(r.Ratio), Interval: formatInterval(r.Interval),
			Answer: r.Answer, Class: "a-" + strings.TrimSuffix(class, ":"), Blocks: r.Blocks,
		}
		if r.Ratio > 0 {
			x.At = percent(at(r.Ratio))
		}
		if i := r.Interval; i != nil {
			x.From, x.Width = percent(at(i.Low)), percent(at(i.High)-at(i.Low))
			x.P = formatP(r.P)
		}
		out = append(out, x)
	}
	return out
}

// formatP returns the text of a p-value. Values below 0.001 are only estimates, so each of them is written as <0.001.
func formatP(p float64) string {
	if p < 0.001 {
		return "< 0.001"
	}
	return fmt.Sprintf("%.3f", p)
}

var letters = map[string]string{bench.Valid: "V", bench.Suspect: "S", bench.Invalid: "I"}

// addTrials adds the strip with a letter for each trial in the order of time, and the table of the trials that are not valid.
func (v *view) addTrials(trials []Trial) {
	v.Problems.Head = []string{"Cell", "Trial", "Block", "Verdict", "Reasons"}
	for _, t := range sortByTime(trials) {
		letter := cmp.Or(letters[t.Verdict], "?")
		title := fmt.Sprintf("trial %d, block %d, %s: %s", t.Order, t.Block, nameCell(t.Cell), t.Verdict)
		reasons := slices.Clone(t.Reasons)
		if t.Incomplete {
			reasons = append(reasons, "not all jobs finished")
		}
		if len(reasons) > 0 {
			title += " (" + strings.Join(reasons, "; ") + ")"
		}
		v.Strip = append(v.Strip, stripCell{letter, verdictClass(t.Verdict), title})
		if t.Verdict != bench.Valid || len(reasons) > 0 {
			v.Problems.Rows = append(v.Problems.Rows, []string{nameCell(t.Cell), fmt.Sprint(t.Order), fmt.Sprint(t.Block), t.Verdict, strings.Join(reasons, "; ")})
		}
	}
}

// viewLimit returns a limit of a scheduler for the template, with the cells whose rate is near the limit.
func viewLimit(l Limit, cells []stats.Group) limitView {
	out := limitView{Cell: nameCell(l.Cell), Name: l.Name, Value: l.Value, Rate: "–"}
	if l.Rate <= 0 {
		return out
	}
	out.Rate = formatNumber(l.Rate) + " /s"
	var metric string
	var near []string
	for _, g := range cells {
		applies := true
		for f, level := range l.Cell {
			applies = applies && g.Cell[f] == level
		}
		isNear := false
		metric, isNear = trial.NearLimit(l.Limit, func(metric string) (float64, bool) {
			s, ok := stats.Median(g.Samples, metric)
			return s.Median, ok
		})
		if isNear && applies {
			near = append(near, nameCell(g.Cell))
		}
	}
	if len(near) > 0 {
		out.Limited = fmt.Sprintf("%s of %s is limited by it", metric, strings.Join(near, "; "))
	}
	return out
}

// without returns a copy of a cell without these factors.
func without(cell map[string]string, factors ...string) map[string]string {
	out := maps.Clone(cell)
	for _, f := range factors {
		delete(out, f)
	}
	return out
}
