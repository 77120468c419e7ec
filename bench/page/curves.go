package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/stats"
	"github.com/nixbench/nixbench/bench/trial"
	"github.com/nixbench/nixbench/deploy/report/frame"
)

// curve is a line of many points in the drawing area of a plot. Its points are in thousandths of the area.
type curve struct{ Class, Points, Title string }

// maxSteps is the maximum number of steps of a curve that rises at each of many values, such as the end times of jobs.
const maxSteps = 150

// steps returns the points of a curve that rises by one at each of the sorted values, and then continues to the right border of the area.
// x maps a value to a horizontal position. total is the number of values with which the curve would reach the top of the area.
func steps(values []float64, total float64, x func(float64) float64) string {
	var b strings.Builder
	height := 1000.0
	add := func(at, y float64) { fmt.Fprintf(&b, "%s,%s ", formatPoint(at), formatPoint(y)) }
	count := min(len(values), maxSteps)
	for i := range count {
		n := (i + 1) * len(values) / count // the number of values that are drawn up to this step
		at := x(values[n-1])
		add(at, height)
		height = 1000 * (1 - float64(n)/total)
		add(at, height)
	}
	add(1000, height)
	return strings.TrimSpace(b.String())
}

func formatPoint(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

// byWorkload returns one group of cells for each workload.
func byWorkload(groups []stats.Group) [][]stats.Group {
	var out [][]stats.Group
	index := map[string]int{}
	for _, g := range groups {
		name := g.Cell[bench.WorkloadFactor]
		if _, known := index[name]; !known {
			index[name] = len(out)
			out = append(out, nil)
		}
		out[index[name]] = append(out[index[name]], g)
	}
	return out
}

// timesOf returns the trials of a cell whose results count and whose jobs have known times.
func (a analysis) timesOf(cell map[string]string) []Trial {
	var out []Trial
	for _, t := range a.all {
		if t.Verdict != bench.Invalid && t.Times != nil && t.Times.Jobs > 0 && stats.Name(t.Cell) == stats.Name(cell) {
			out = append(out, t)
		}
	}
	return out
}

// timeList is one of the lists of times of a trial's jobs.
type timeList struct {
	name string
	of   func(*trial.Times) []float64
}

// stages are the curves in the progress drawing of a trial: jobs created, bound and finished.
var stages = []timeList{
	{"created", func(t *trial.Times) []float64 { return t.Created }},
	{"bound", func(t *trial.Times) []float64 { return t.Bound }},
	{"finished", func(t *trial.Times) []float64 { return t.Finished }},
}

func stageSeries() []series {
	var names []string
	for _, s := range stages {
		names = append(names, s.name)
	}
	return makeSeries(names)
}

// plotProgress draws how many jobs were created, bound and finished over time, in the trial of each cell with the median throughput. The cells
// of a workload have the same axes.
func (a analysis) plotProgress() []plot {
	names := stageSeries()
	var out []plot
	for _, cells := range byWorkload(a.cells) {
		var chosen []Trial
		last, jobs := 0.0, 0
		for _, g := range cells {
			trials := a.timesOf(g.Cell)
			if len(trials) == 0 {
				continue
			}
			slices.SortStableFunc(trials, func(a, b Trial) int { return cmp.Compare(a.Metrics["throughput"], b.Metrics["throughput"]) })
			t := trials[(len(trials)-1)/2]
			chosen = append(chosen, t)
			jobs = max(jobs, t.Times.Jobs)
			for _, s := range stages {
				for _, v := range s.of(t.Times) {
					last = max(last, v)
				}
			}
		}
		for _, t := range chosen {
			out = append(out, drawProgress(t, last, jobs, names))
		}
	}
	return out
}

// drawProgress draws the curves in stages for one trial. The time axis ends after `last` seconds. The vertical axis ends at the number
// jobs.
func drawProgress(t Trial, last float64, jobs int, names []series) plot {
	p := plot{Title: nameCell(t.Cell), Unit: fmt.Sprintf("jobs, trial %d in block %d", t.Order, t.Block), XName: "time"}
	y, ticks := heights(0, float64(jobs))
	p.YTicks = ticks
	if last <= 0 {
		last = 1
	}
	x := scale{from: 0, to: last, begin: left, end: right}
	step := roundStep(last, 5)
	for i := 0.0; i*step <= last; i++ {
		p.XTicks = append(p.XTicks, frame.Tick{At: x.at(i * step), Anchor: "middle", Text: formatTick(i*step) + " s"})
	}
	area := scale{from: 0, to: last, begin: 0, end: 1000}
	for i, s := range stages {
		values := s.of(t.Times)
		if len(values) > 0 {
			p.Curves = append(p.Curves, curve{
				names[i].Class, steps(values, y.to, func(v float64) float64 { return max(area.position(v), 0) }),
				fmt.Sprintf("%s: %d of %d jobs, the last after %s s", s.name, len(values), t.Times.Jobs, formatNumber(values[len(values)-1])),
			})
		}
	}
	return p
}

// distributions are the times of jobs whose distribution is drawn.
var distributions = []timeList{
	{"wait", func(t *trial.Times) []float64 { return t.Wait }},
	{"schedule", func(t *trial.Times) []float64 { return t.Schedule }},
}

// plotDistribution draws, for each cell and each time, the share of the jobs whose time (such as the wait) was at most this time. It uses
// the jobs of all trials that count. A job without such a time also counts among all jobs, so that the curve of its cell ends below 100
// %.
func (a analysis) plotDistribution(name string, of func(*trial.Times) []float64, names []series) []plot {
	var out []plot
	workloads := byWorkload(a.cells)
	for _, cells := range workloads {
		values, jobs := make([][]float64, len(cells)), make([]int, len(cells))
		low, high := math.Inf(1), 0.0
		for i, g := range cells {
			for _, t := range a.timesOf(g.Cell) {
				values[i] = append(values[i], of(t.Times)...)
				jobs[i] += t.Times.Jobs
			}
			slices.Sort(values[i])
			for _, v := range values[i] {
				if v > 0 {
					low, high = min(low, v), max(high, v)
				}
			}
		}
		if high == 0 { // nothing to draw: a logarithmic axis needs a value greater than 0
			continue
		}
		p := plot{Title: name, Unit: "% of the jobs", XName: name}
		if w := cells[0].Cell[bench.WorkloadFactor]; len(workloads) > 1 {
			p.Title += ", " + bench.WorkloadFactor + "=" + w
		}
		x, ticks := decades(low, high, left, right)
		p.XTicks, p.Columns = ticks, true
		y, _ := heights(0, 100)
		for _, share := range []float64{0, 25, 50, 75, 90, 100} {
			p.YTicks = append(p.YTicks, frame.Tick{At: y.at(share), Text: formatTick(share)})
		}
		area := x
		area.begin, area.end = 0, 1000
		for i, g := range cells {
			if len(values[i]) == 0 {
				continue
			}
			at := func(v float64) float64 { return area.position(max(v, area.from)) }
			p.Curves = append(p.Curves, curve{
				classOf(names, nameCell(g.Cell)), steps(values[i], float64(jobs[i])*y.to/100, at),
				fmt.Sprintf("%s: %d of %d jobs, median %s s", nameCell(g.Cell), len(values[i]), jobs[i], formatNumber(stats.MedianOf(values[i]))),
			})
		}
		out = append(out, p)
	}
	return out
}

// decades returns a logarithmic scale with its ticks. The scale contains the values low and high, and has the positions begin to end. low
// must be above 0. The first and the last value of the scale have the form 1, 2 or 5 times a power of ten.
func decades(low, high, begin, end float64) (scale, []frame.Tick) {
	from, to := roundDown(low), roundUp(high)
	if from == to {
		to = roundUp(2 * high)
	}
	s := scale{from: from, to: to, begin: begin, end: end, log: true}
	first, last := math.Ceil(math.Log10(from)-1e-9), math.Floor(math.Log10(to)+1e-9)
	step := max(math.Ceil((last-first)/6), 1)
	var values []float64
	for e := first; e <= last; e += step {
		values = append(values, math.Pow(10, e))
	}
	if len(values) < 2 {
		values = slices.Compact(slices.Sorted(slices.Values(append(values, from, to))))
	}
	var ticks []frame.Tick
	for _, v := range values {
		ticks = append(ticks, frame.Tick{At: s.at(v), Anchor: anchor(v, from, to), Text: formatTick(v) + " s"})
	}
	return s, ticks
}

// roundUp returns the smallest number of the form 1, 2 or 5 times a power of ten that is at least v.
func roundUp(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{1, 2, 5} {
		if f*power >= v {
			return f * power
		}
	}
	return 10 * power
}

// roundDown returns the largest number of the form 1, 2 or 5 times a power of ten that is at most v.
func roundDown(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{5, 2} {
		if f*power <= v {
			return f * power
		}
	}
	return power
}
