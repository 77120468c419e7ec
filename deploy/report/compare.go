package report

import (
	"fmt"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/explain"
	"github.com/nixbench/nixbench/deploy/state"
)

// comparison compares the times of a run with the times of an earlier run.
type comparison struct {
	Now, Before             string
	NowCommand, BeforeTitle string
	Total                   pair
	Phases, Nodes           []pair
	More                    int
}

// pair is the time that a phase or a node took in both runs.
type pair struct {
	Name, Note               string
	Now, Before              string
	NowWidth, BeforeWidth    string // widths of the two bars in percent, with a common scale
	Ratio, Trend, Difference string
}

// compareRuns compares the times of phases and nodes of two runs.
func compareRuns(now, before Subject) *comparison {
	c := &comparison{Now: now.Run.ID, Before: before.Run.ID,
		NowCommand: now.Run.Command, BeforeTitle: fmt.Sprintf("nixbench %s, %s", before.Run.Command, formatTime(before.Run.Started))}
	scale := max(now.Time.Total, before.Time.Total)
	c.Total = newPair("in all", duration{now.Time.Total, true}, duration{before.Time.Total, true}, scale)

	names, a, b := listPhases(now.Time), phaseTimes(now.Time), phaseTimes(before.Time)
	for _, p := range listPhases(before.Time) {
		if _, both := a[p]; !both {
			names = append(names, p)
		}
	}
	for _, p := range names {
		c.Phases = append(c.Phases, newPair(string(p), a[p], b[p], scale))
	}

	x, y := nodeTimes(now.Time), nodeTimes(before.Time)
	var longest explain.Seconds
	for _, times := range []map[string]duration{x, y} {
		for _, t := range times {
			longest = max(longest, t.time)
		}
	}
	shown, more := now.Time.SelectNodes(maxDrawnNodes)
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
		if _, both := x[n.Node]; !both && len(c.Nodes) < 2*maxDrawnNodes {
			add(n.Node)
		}
	}
	return c
}

// duration is the time of a phase or a node in one run.
type duration struct {
	time    explain.Seconds
	present bool // the run has this phase or node
}

// listPhases returns the phases of the whole run, and then the phases that are recorded only for nodes.
func listPhases(r explain.Report) []event.Phase {
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

// phaseTimes returns the time of each phase. For a phase that is recorded only for nodes, this is the time
// in which at least one node was in the phase.
func phaseTimes(r explain.Report) map[event.Phase]duration {
	whole, parts := map[event.Phase][]explain.Span{}, map[event.Phase][]explain.Span{}
	for _, s := range r.Phases {
		whole[s.Phase] = append(whole[s.Phase], s)
	}
	for _, n := range r.Nodes {
		for _, s := range n.Spans {
			parts[s.Phase] = append(parts[s.Phase], s)
		}
	}
	out := map[event.Phase]duration{}
	for p, spans := range parts {
		out[p] = duration{explain.Union(spans), true}
	}
	for p, spans := range whole {
		out[p] = duration{explain.Union(spans), true}
	}
	return out
}

func nodeTimes(r explain.Report) map[string]duration {
	out := map[string]duration{}
	for _, n := range r.Nodes {
		out[n.Node] = duration{n.Busy, true}
	}
	return out
}

// A time is marked as slower or faster only if the difference exceeds both of these limits. Smaller differences
// are not marked, because two identical runs also differ slightly.
const (
	minRelativeChange = 0.1
	minAbsoluteChange = explain.Seconds(200 * time.Millisecond)
)

// newPair returns a row of the comparison with the times in both runs. scale is the time whose bar has the full width.
func newPair(name string, now, before duration, scale explain.Seconds) pair {
	p := pair{Name: name, Now: "–", Before: "–", Ratio: "–", Trend: "same",
		NowWidth: formatPercent(now.time, scale), BeforeWidth: formatPercent(before.time, scale)}
	if now.present {
		p.Now = now.time.String()
	}
	if before.present {
		p.Before = before.time.String()
	}
	if !now.present || !before.present || before.time <= 0 {
		return p
	}
	ratio := float64(now.time) / float64(before.time)
	p.Ratio = fmt.Sprintf("×%.2f", ratio)
	if ratio >= 10 {
		p.Ratio = fmt.Sprintf("×%.0f", ratio)
	}
	switch {
	case ratio > 1+minRelativeChange && now.time-before.time >= minAbsoluteChange:
		p.Trend, p.Difference = "slower", "+"+(now.time-before.time).String()
	case ratio < 1-minRelativeChange && before.time-now.time >= minAbsoluteChange:
		p.Trend, p.Difference = "faster", "−"+(before.time-now.time).String()
	}
	return p
}
