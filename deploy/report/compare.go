package report

import (
	"fmt"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/explain"
	"github.com/nixbench/nixbench/deploy/state"
)

// comparison puts a run beside another.
type comparison struct {
	Now, Before             string
	NowCommand, BeforeTitle string
	Total                   pair
	Phases, Nodes           []pair
	More                    int
}

// pair is what something took in both runs.
type pair struct {
	Name, Note               string
	Now, Before              string
	NowWidth, BeforeWidth    string // of bars on one scale
	Ratio, Trend, Difference string
}

func compare(now, before Subject) *comparison {
	c := &comparison{Now: now.Run.ID, Before: before.Run.ID,
		NowCommand: now.Run.Command, BeforeTitle: fmt.Sprintf("nixbench %s, %s", before.Run.Command, clock(before.Run.Started))}
	scale := max(now.Time.Total, before.Time.Total)
	c.Total = newPair("in all", took{now.Time.Total, true}, took{before.Time.Total, true}, scale)

	names, a, b := phases(now.Time), phaseTimes(now.Time), phaseTimes(before.Time)
	for _, p := range phases(before.Time) {
		if _, both := a[p]; !both {
			names = append(names, p)
		}
	}
	for _, p := range names {
		c.Phases = append(c.Phases, newPair(string(p), a[p], b[p], scale))
	}

	x, y := nodeTimes(now.Time), nodeTimes(before.Time)
	var longest explain.Seconds
	for _, times := range []map[string]took{x, y} {
		for _, t := range times {
			longest = max(longest, t.time)
		}
	}
	shown, more := now.Time.Foremost(drawnNodes)
	c.More = more
	outcome := map[string]state.Outcome{}
	for _, n := range before.Run.Nodes {
		outcome[n.Node] = n.Outcome
	}
	add := func(name string) {
		p := newPair(name, x[name], y[name], longest)
		if o := outcome[name]; o != "" {
			p.Note = "was " + string(o)
		}
		c.Nodes = append(c.Nodes, p)
	}
	for _, n := range shown {
		add(n.Node)
	}
	for _, n := range before.Time.Nodes {
		if _, both := x[n.Node]; !both && len(c.Nodes) < 2*drawnNodes {
			add(n.Node)
		}
	}
	return c
}

type took struct {
	time explain.Seconds
	was  bool
}

// phases are those of a run as a whole in their order, then those of its nodes.
func phases(r explain.Report) []event.Phase {
	var out []event.Phase
	seen := map[event.Phase]bool{}
	add := func(spans []explain.Span) {
		for _, s := range spans {
			if !seen[s.Phase] {
				seen[s.Phase] = true
				out = append(out, s.Phase)
			}
		}
	}
	add(r.Phases)
	for _, n := range r.Nodes {
		add(n.Spans)
	}
	return out
}

// phaseTimes is how long phases took: of one that nodes went through, from the first node that
// began it to the last that was through.
func phaseTimes(r explain.Report) map[event.Phase]took {
	type bounds struct{ from, to explain.Seconds }
	of := func(spans []explain.Span, into map[event.Phase]bounds) {
		for _, s := range spans {
			b, seen := into[s.Phase]
			if !seen {
				b = bounds{s.Start, s.Start + s.Took}
			}
			into[s.Phase] = bounds{min(b.from, s.Start), max(b.to, s.Start+s.Took)}
		}
	}
	whole, parts := map[event.Phase]bounds{}, map[event.Phase]bounds{}
	of(r.Phases, whole)
	for _, n := range r.Nodes {
		of(n.Spans, parts)
	}
	out := map[event.Phase]took{}
	for p, b := range parts {
		out[p] = took{b.to - b.from, true}
	}
	for p, b := range whole {
		out[p] = took{b.to - b.from, true}
	}
	return out
}

func nodeTimes(r explain.Report) map[string]took {
	out := map[string]took{}
	for _, n := range r.Nodes {
		out[n.Node] = took{n.Busy, true}
	}
	return out
}

// noise is what two runs of the same may differ by: no difference worth a colour.
const noise = 0.1

func newPair(name string, now, before took, scale explain.Seconds) pair {
	p := pair{Name: name, Now: "–", Before: "–", Ratio: "–", Trend: "same",
		NowWidth: percent(now.time, scale), BeforeWidth: percent(before.time, scale)}
	if now.was {
		p.Now = now.time.String()
	}
	if before.was {
		p.Before = before.time.String()
	}
	if !now.was || !before.was || before.time <= 0 {
		return p
	}
	ratio := float64(now.time) / float64(before.time)
	p.Ratio = fmt.Sprintf("×%.2f", ratio)
	if ratio >= 10 {
		p.Ratio = fmt.Sprintf("×%.0f", ratio)
	}
	switch {
	case ratio > 1+noise:
		p.Trend, p.Difference = "slower", "+"+(now.time-before.time).String()
	case ratio < 1-noise:
		p.Trend, p.Difference = "faster", "−"+(before.time-now.time).String()
	}
	return p
}
