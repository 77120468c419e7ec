package report

import (
	"fmt"
	"time"

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
	shown, more := now.Time.SelectNodes(drawnNodes)
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

// phaseTimes is how long phases took: of one that nodes went through, how long any node was in it.
func phaseTimes(r explain.Report) map[event.Phase]took {
	whole, parts := map[event.Phase][]explain.Span{}, map[event.Phase][]explain.Span{}
	for _, s := range r.Phases {
		whole[s.Phase] = append(whole[s.Phase], s)
	}
	for _, n := range r.Nodes {
		for _, s := range n.Spans {
			parts[s.Phase] = append(parts[s.Phase], s)
		}
	}
	out := map[event.Phase]took{}
	for p, spans := range parts {
		out[p] = took{explain.Union(spans), true}
	}
	for p, spans := range whole {
		out[p] = took{explain.Union(spans), true}
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

// What two runs of the same may differ by is no difference worth a colour.
const (
	noise  = 0.1
	little = explain.Seconds(200 * time.Millisecond)
)

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
	case ratio > 1+noise && now.time-before.time >= little:
		p.Trend, p.Difference = "slower", "+"+(now.time-before.time).String()
	case ratio < 1-noise && before.time-now.time >= little:
		p.Trend, p.Difference = "faster", "−"+(before.time-now.time).String()
	}
	return p
}
