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
)

// curve is a line of many points in the drawing area of a plot. Its points are in thousandths of the area.
type curve struct{ Class, Points, Title string }

// change is a change of a value at a time.
type change struct{ at, by float64 }

// maxSteps is the maximum number of steps of a curve that changes at many times, such as the starts of jobs.
const maxSteps = 200

// addCurve adds a curve that begins at 0 and changes by the changes, and returns its largest value. x maps a time to a position on the
// horizontal axis, and top is the value at the top of the area.
func (p *plot) addCurve(s series, title string, changes []change, x scale, top float64) (largest float64) {
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	x.begin, x.end = 0, 1000
	var b strings.Builder
	value, height := 0.0, 1000.0
	add := func(at, y float64) { fmt.Fprintf(&b, "%.1f,%.1f ", at, y) }
	every := max((len(changes)+maxSteps-1)/maxSteps, 1)
	for i, c := range changes {
		value += c.by
		largest = max(largest, value)
		if (i+1)%every != 0 && i != len(changes)-1 {
			continue
		}
		at := x.position(max(c.at, x.from))
		add(at, height)
		height = 1000 * (1 - value/top)
		add(at, height)
		p.Data = append(p.Data, []string{s.Name, fmt.Sprint(c.at), fmt.Sprint(value)})
	}
	add(1000, height)
	p.Curves = append(p.Curves, curve{s.Class, strings.TrimSpace(b.String()), title})
	return largest
}

// plotLoad draws the length of the queue and the utilisation over time, for each of the cells, which have one workload: for the trial of the
// cell with the median throughput, if the cell has a trial whose jobs have known times.
func (a analysis) plotLoad(cells []stats.Group, names []series) []plot {
	var trials []Trial
	var waiting, running [][]change
	last, known := 0.0, true // the numbers of processors are known
	for _, g := range cells {
		all := stats.Keep(a.all, func(t Trial) bool {
			return t.State != bench.Invalid && len(t.Spans) > 0 && maps.Equal(stats.Without(t.Cell, bench.RepeatFactor), g.Cell)
		})
		if len(all) == 0 {
			continue
		}
		slices.SortStableFunc(all, func(a, b Trial) int { return cmp.Compare(a.Metrics["throughput"], b.Metrics["throughput"]) })
		t := all[(len(all)-1)/2]
		var waits, runs []change
		add := func(to *[]change, at, by float64) {
			if !math.IsInf(at, 0) {
				*to, last = append(*to, change{at, by}), max(last, at)
			}
		}
		for _, s := range t.Spans {
			add(&waits, s.Submit, 1)
			add(&waits, min(s.Start, s.End), -1) // a job that was refused has no start
			if share := 100 * float64(s.CPUs) / float64(t.Result.CPUs); !math.IsInf(s.Start, 0) {
				add(&runs, s.Start, share)
				add(&runs, s.End, -share)
			}
		}
		trials, waiting, running, known = append(trials, t), append(waiting, waits), append(running, runs), known && t.Result.CPUs > 0
	}
	if len(trials) == 0 {
		return nil
	}
	x := scale{from: 0, to: cmp.Or(last, 1), begin: left, end: right}
	out := []plot{a.plotSteps("jobs that wait", "", trials, waiting, 1, x, names)}
	if known {
		out = append(out, a.plotSteps("processors in use", "%", trials, running, 100, x, names))
	}
	return out
}

// plotSteps draws a value over time that changes by the changes of each of the trials. The vertical axis ends at the largest value, and not
// below least.
func (a analysis) plotSteps(title, unit string, trials []Trial, changes [][]change, least float64, x scale, names []series) plot {
	p := plot{Title: title, Unit: unit, XName: "time", Data: [][]string{{"series", "seconds", title}}}
	step := roundUp(x.to / 5)
	for i := 0.0; i*step <= x.to; i++ {
		p.XTicks = append(p.XTicks, Tick{At: x.at(i * step), Anchor: "middle", Text: formatTick(i*step) + " s"})
	}
	for _, c := range changes {
		least = max(least, new(plot).addCurve(series{}, "", c, x, 1))
	}
	var y scale
	y, p.YTicks = heights(0, least)
	for i, t := range trials {
		name := a.nameInWorkload(t.Cell)
		s := series{name, classOf(names, name)}
		p.Legend = append(p.Legend, s)
		p.addCurve(s, fmt.Sprintf("%s, trial %d", name, t.Order), changes[i], x, y.to)
	}
	return p
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
