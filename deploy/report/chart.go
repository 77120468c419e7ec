package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/explain"
	"github.com/nixbench/nixbench/deploy/report/frame"
)

// maxDrawnNodes is the maximum number of nodes in a chart.
const maxDrawnNodes = 60

// chart is the waterfall chart: a row of bars for each phase of the whole run, and for each node. The template computes the
// positions of bars in percent of the width, so that the chart fits phones, screens and paper, and texts are not stretched.
type chart struct {
	Ticks  []frame.Tick
	Phases []row
	Nodes  []row
	More   int           // number of nodes that are not drawn
	Legend []event.Phase // the phases of the chart, in the order of the rows
}

type row struct {
	Name   string
	Took   explain.Seconds
	Spans  []explain.Span // the bars, in the order in which they are drawn
	Failed bool
	Ticks  []frame.Tick
}

func newChart(r explain.Report) chart {
	c := chart{Ticks: makeTicks(r.Total)}
	newRow := func(name string, took explain.Seconds, spans []explain.Span) row {
		// Draw the short spans last, so that long spans do not hide them.
		sorted := slices.SortedStableFunc(slices.Values(spans), func(a, b explain.Span) int { return cmp.Compare(b.Took, a.Took) })
		for _, s := range spans {
			if !slices.Contains(c.Legend, s.Phase) {
				c.Legend = append(c.Legend, s.Phase)
			}
		}
		failed := slices.ContainsFunc(spans, func(s explain.Span) bool { return s.Failed })
		return row{name, took, sorted, failed, c.Ticks}
	}
	for _, s := range r.Phases {
		c.Phases = append(c.Phases, newRow(string(s.Phase), s.Took, []explain.Span{s}))
	}
	shown, more := r.SelectNodes(maxDrawnNodes)
	c.More = more
	for _, n := range shown {
		c.Nodes = append(c.Nodes, newRow(n.Node, n.Busy, n.Spans))
	}
	return c
}

// makeTicks returns the ticks of the time axis, at multiples of a round number: at most seven ticks, and for a run of more
// than a day up to 100.
func makeTicks(total explain.Seconds) []frame.Tick {
	every := time.Duration(0)
	for _, s := range []float64{0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400} {
		if every = time.Duration(s * float64(time.Second)); time.Duration(total)/every <= 6 {
			break
		}
	}
	var out []frame.Tick
	for t := time.Duration(0); t < time.Duration(total) && len(out) < 100; t += every {
		anchor := "middle"
		switch at := float64(t) / float64(total); {
		case t == 0:
			anchor = "start"
		case at > 0.94:
			anchor = "end"
		}
		out = append(out, frame.Tick{At: frame.Percent(float64(t), float64(total)), Anchor: anchor, Text: explain.Seconds(t).String()})
	}
	return out
}
