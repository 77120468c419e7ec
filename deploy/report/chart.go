package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/explain"
	"github.com/nixbench/nixbench/deploy/report/frame"
)

// maxDrawnNodes is the maximum number of nodes in a chart.
const maxDrawnNodes = 60

// chart is the waterfall chart: a row of bars for each node. Positions are in percent of the width, so that it fits phones,
// screens and paper, and texts are not stretched.
type chart struct {
	Ticks  []frame.Tick
	Phases []row
	Nodes  []row
	More   int           // number of nodes that are not drawn
	Legend []event.Phase // the phases of the chart, in the order of a run
}

type row struct {
	Name, Took string
	Bars       []bar
	Failed     bool
}

type bar struct {
	X, Width, Class, Title string
}

// colouredPhases are the phases that have their own colour in style.css. All other phases share one colour.
var colouredPhases = map[event.Phase]bool{
	event.Survey: true, event.Evaluate: true, event.Build: true, event.Provision: true, event.Image: true, event.Boot: true,
	event.Deploy: true, event.Connect: true, event.Copy: true, event.Keys: true, event.Drain: true, event.Activate: true,
	event.Confirm: true, event.Check: true, event.Remove: true,
}

// phaseClass returns the CSS class of the bars of a phase.
func phaseClass(p event.Phase) string {
	if colouredPhases[p] {
		return "p-" + string(p)
	}
	return "p-other"
}

// newChart computes the chart of the run and of at most maxDrawnNodes nodes.
func newChart(r explain.Report) *chart {
	if len(r.Phases)+len(r.Nodes) == 0 {
		return nil
	}
	c := &chart{Ticks: makeTicks(r.Total)}
	used := map[event.Phase]bool{}
	for _, s := range r.Phases {
		c.Phases = append(c.Phases, newRow(string(s.Phase), []explain.Span{s}, s.Took, r.Total))
		used[s.Phase] = true
	}
	shown, more := r.SelectNodes(maxDrawnNodes)
	c.More = more
	for _, n := range shown {
		c.Nodes = append(c.Nodes, newRow(n.Node, n.Spans, n.Busy, r.Total))
		for _, s := range n.Spans {
			used[s.Phase] = true
		}
	}
	order := []event.Phase{
		event.Survey, event.Provision, event.Image, event.Boot, event.Evaluate, event.Build, event.Deploy, event.Connect,
		event.Copy, event.Keys, event.Drain, event.Activate, event.Confirm, event.Check, event.Remove,
	}
	for p := range used {
		if !slices.Contains(order, p) {
			c.Legend = append(c.Legend, p)
		}
	}
	slices.Sort(c.Legend)
	for _, p := range slices.Backward(order) {
		if used[p] {
			c.Legend = slices.Insert(c.Legend, 0, p)
		}
	}
	return c
}

// newRow returns a row of the chart with a bar for each span. total is the duration of the run, which has the full width.
func newRow(name string, spans []explain.Span, took, total explain.Seconds) row {
	r := row{Name: name, Took: took.String()}
	// Draw the short spans last, so that long spans do not hide them.
	spans = slices.Clone(spans)
	slices.SortStableFunc(spans, func(a, b explain.Span) int { return cmp.Compare(b.Took, a.Took) })
	for _, s := range spans {
		b := bar{X: formatPercent(s.Start, total), Width: formatPercent(s.Took, total), Class: phaseClass(s.Phase), Title: fmt.Sprintf("%s: %s, from %s", s.Phase, s.Took, s.Start)}
		if s.Node != "" {
			b.Title = s.Node + " " + b.Title
		}
		if s.Text != "" {
			b.Title += " (" + s.Text + ")"
		}
		switch {
		case s.Failed:
			b.Class += " failed"
			b.Title += " – failed"
			r.Failed = true
		case s.Unfinished:
			b.Class += " unfinished"
			b.Title += " – never ended"
		}
		r.Bars = append(r.Bars, b)
	}
	return r
}

// makeTicks returns the ticks of the time axis, at multiples of a round number. It returns at most seven
// ticks. For a run of more than a week, it returns one tick per day, and at most 100.
func makeTicks(total explain.Seconds) []frame.Tick {
	if total <= 0 {
		return nil
	}
	every := time.Millisecond
	for _, f := range []int{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000,
		60_000, 120_000, 300_000, 600_000, 900_000, 1_800_000, 3_600_000, 7_200_000, 14_400_000, 43_200_000, 86_400_000} {
		every = time.Duration(f) * time.Millisecond
		if time.Duration(total)/every <= 6 {
			break
		}
	}
	var out []frame.Tick
	for t := time.Duration(0); t <= time.Duration(total) && len(out) < 100; t += every {
		anchor := "middle"
		switch at := float64(t) / float64(total); {
		case t == 0:
			anchor = "start"
		case at > 0.94:
			anchor = "end"
		}
		out = append(out, frame.Tick{At: formatPercent(explain.Seconds(t), total), Anchor: anchor, Text: formatTick(t, every)})
	}
	return out
}

// formatTick returns the text of the tick at t. every is the time between two ticks, which decides the units of the text.
func formatTick(t, every time.Duration) string {
	switch {
	case t == 0:
		return "0"
	case every < 100*time.Millisecond:
		return fmt.Sprintf("%d ms", t.Milliseconds())
	case every < time.Second:
		return fmt.Sprintf("%.1f s", t.Seconds())
	case t < time.Minute:
		return fmt.Sprintf("%d s", int(t.Seconds()))
	case t < time.Hour && t%time.Minute != 0:
		return fmt.Sprintf("%d:%02d min", int(t.Minutes()), int(t.Seconds())%60)
	case t < time.Hour:
		return fmt.Sprintf("%d min", int(t.Minutes()))
	}
	return fmt.Sprintf("%d:%02d h", int(t.Hours()), int(t.Minutes())%60)
}
