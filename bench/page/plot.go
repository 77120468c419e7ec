package page

import (
	"fmt"
	"math"
	"strings"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/stats"
	"github.com/nixbench/nixbench/deploy/report/frame"
)

// plot is a drawing of points, lines and curves in two dimensions. Positions are in percent of the drawing, so that it fits phones, screens
// and paper, and texts are not stretched.
type plot struct {
	Title, Unit, XName string
	XTicks, YTicks     []frame.Tick
	Columns            bool // vertical lines at XTicks
	Lines              []line
	Points             []point
	Curves             []curve
}

type line struct{ X1, Y1, X2, Y2, Class string }

type point struct{ X, Y, Class, Title string }

// series is an entry of a legend: a name and the CSS class of its line.
type series struct{ Name, Class string }

// colours is the number of colours that page.css has for series. Series with a higher index have dashed lines.
const colours = 8

func seriesClass(i int) string {
	class := fmt.Sprintf("c%d", i%colours)
	if i >= colours {
		class += " again"
	}
	return class
}

// The borders of the drawing area within a plot, in percent. The texts of the vertical axis are to the left of this area, and the texts of
// the horizontal axis are below.
const left, right, top, bottom = 14, 97, 6, 90

func percent(v float64) string { return frame.Percent(v, 100) }

// scale maps values to positions.
type scale struct {
	from, to   float64 // values
	begin, end float64 // positions
	log        bool
}

func (s scale) at(v float64) string { return percent(s.position(v)) }

func (s scale) position(v float64) float64 {
	from, to := s.from, s.to
	if s.log {
		v, from, to = math.Log(v), math.Log(from), math.Log(to)
	}
	if from == to {
		return (s.begin + s.end) / 2
	}
	return s.begin + (v-from)/(to-from)*(s.end-s.begin)
}

// roundStep returns the smallest distance between ticks that divides an axis of this size into at most n parts. The distance is 1, 2
// or 5 times a power of ten.
func roundStep(size float64, n int) float64 {
	if size <= 0 {
		return 1
	}
	return roundUp(size / float64(n))
}

// heights returns a vertical scale for values from low to high, with its ticks. The scale begins at 0, or at low if low is below 0:
// inexact clocks cause such values.
func heights(low, high float64) (scale, []frame.Tick) {
	low = min(low, 0)
	if high <= low {
		high = low + 1
	}
	s := scale{from: low, to: high, begin: bottom, end: top}
	step := roundStep(high-low, 4)
	var ticks []frame.Tick
	for i := math.Ceil(low / step); i*step <= high; i++ {
		ticks = append(ticks, frame.Tick{At: s.at(i * step), Text: formatTick(i * step)})
	}
	return s, ticks
}

// formatTick returns the text of a tick without zeros at the end.
func formatTick(v float64) string {
	if v == 0 { // also -0
		return "0"
	}
	if math.Abs(v) >= 1e6 || math.Abs(v) < 1e-4 {
		return fmt.Sprintf("%.3g", v)
	}
	text := fmt.Sprintf("%.6f", v)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// valueRange returns the smallest and the largest value of a metric.
func valueRange(trials []Trial, metric string) (low, high float64, any bool) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, t := range trials {
		if v, have := t.Metrics[metric]; have {
			low, high, any = min(low, v), max(high, v), true
		}
	}
	return low, high, any
}

// pointClass returns the CSS class of the point of a trial. Points of invalid trials are drawn hollow.
func pointClass(class string, t Trial) string {
	if t.Verdict == bench.Invalid {
		return class + " hollow"
	}
	return class
}

func pointTitle(t Trial, metric string) string {
	title := fmt.Sprintf("%s: %s, trial %d, block %d", nameCell(t.Cell), formatUnit(t.Metrics[metric], metric), t.Order, t.Block)
	if t.Verdict != bench.Valid {
		title += ", " + t.Verdict
	}
	return title
}

// plotScaling draws a metric against a factor whose levels are numbers, with one line per combination of the other factors' levels.
func (a analysis) plotScaling(f factor, metric string, names []series) (plot, bool) {
	low, high, any := valueRange(a.all, metric)
	if !any {
		return plot{}, false
	}
	p := plot{Title: metric, Unit: describe(metric).Unit, XName: f.name}
	x := scale{from: f.numbers[0], to: f.numbers[len(f.numbers)-1], begin: left + 2, end: right - 2}
	x.log = x.from > 0 && x.to/x.from >= 8
	y, ticks := heights(low, high)
	p.YTicks = ticks
	place := map[string]string{}
	for i, l := range f.levels {
		place[l] = x.at(f.numbers[i])
		p.XTicks = append(p.XTicks, frame.Tick{At: place[l], Anchor: "middle", Text: l})
	}
	for _, g := range stats.GroupBy(a.base, f.name) {
		last := line{Class: classOf(names, nameCell(g.Cell))}
		for i, l := range f.levels {
			m, ok := stats.Median(stats.Select(g.Samples, f.name, l), metric)
			if ok && math.IsInf(m.Median, 0) { // the median trial did not finish, so the line has a gap here
				last.X1 = ""
			}
			if !ok || math.IsInf(m.Median, 0) {
				continue
			}
			last.X2, last.Y2 = x.at(f.numbers[i]), y.at(m.Median)
			if last.X1 != "" {
				p.Lines = append(p.Lines, last)
			}
			last.X1, last.Y1 = last.X2, last.Y2
		}
	}
	for _, t := range a.all {
		v, have := t.Metrics[metric]
		at, known := place[t.Cell[f.name]]
		if have && known {
			p.Points = append(p.Points, point{at, y.at(v), pointClass(classOf(names, nameCell(without(t.Cell, f.name, bench.RepeatFactor))), t), pointTitle(t, metric)})
		}
	}
	return p, true
}

// plotDrift draws the metric of each trial in the order of time, so that a reader sees a drift.
func (a analysis) plotDrift(metric string, names []series) (plot, bool) {
	return plotByTime(a.all, plot{Title: metric, Unit: describe(metric).Unit}, nil, func(t Trial) (float64, point, bool) {
		v, have := t.Metrics[metric]
		return v, point{Class: pointClass(classOf(names, nameCell(t.Cell)), t), Title: pointTitle(t, metric)}, have
	})
}

// plotByTime draws a value of each trial in the order of time, and limits as horizontal lines. value returns false for trials without a
// value. plotByTime returns false if no trial has a value.
func plotByTime(trials []Trial, p plot, limits []float64, value func(Trial) (float64, point, bool)) (plot, bool) {
	low, high := math.Inf(1), math.Inf(-1)
	first, last := math.Inf(1), math.Inf(-1)
	for _, t := range trials {
		first, last = min(first, float64(t.Order)), max(last, float64(t.Order))
		if v, _, have := value(t); have {
			low, high = min(low, v), max(high, v)
		}
	}
	if low > high {
		return p, false
	}
	for _, l := range limits {
		low, high = min(low, l), max(high, l)
	}
	y, ticks := heights(low, high)
	p.XName, p.YTicks = "number of the trial", ticks
	x := scale{from: first, to: last, begin: left + 2, end: right - 2}
	step := max(roundStep(last-first, 6), 1)
	for i := math.Ceil(first / step); i*step <= last; i++ {
		p.XTicks = append(p.XTicks, frame.Tick{At: x.at(i * step), Anchor: "middle", Text: formatTick(i * step)})
	}
	for _, l := range limits {
		p.Lines = append(p.Lines, line{X1: percent(left), X2: percent(right), Y1: y.at(l), Y2: y.at(l), Class: "limit"})
	}
	for _, t := range trials {
		if v, at, have := value(t); have {
			at.X, at.Y = x.at(float64(t.Order)), y.at(v)
			p.Points = append(p.Points, at)
		}
	}
	return p, true
}
