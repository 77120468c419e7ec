// Package explain computes how a run has used its time: per phase, per node, and along the critical
// path, the chain of phases that the end of the run waited for. The input is the recorded events of a run.
//
// The critical path is computed backwards: it ends with the phase that ended last, before which it has the phase that ended last before
// that one began, and so on. The time of the run that is in no phase of the path is nixbench's own time.
package explain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/state/runs"
)

// Report describes how a run has used its time. The starts of spans are counted from the start of the run.
type Report struct {
	Run      string      `json:"run,omitempty"`
	Status   runs.Status `json:"status,omitempty"`
	Started  time.Time   `json:"started"`
	Total    Seconds     `json:"total"`
	Phases   []Span      `json:"phases"`            // the phases of the whole run, ordered by start
	Nodes    []Node      `json:"nodes"`             // the nodes with their phases, the node with the most time first
	Critical []Span      `json:"critical"`          // the critical path, ordered by start; a span may be cut to the part for which the next span waited
	Other    Seconds     `json:"other"`             // nixbench's own time: Total minus the spans of Critical
	Damaged  int         `json:"damaged,omitempty"` // number of damaged lines in the run's events
}

type Node struct {
	Node  string  `json:"node"`
	Spans []Span  `json:"spans"`
	Busy  Seconds `json:"busy"` // time in which the node was in a phase
}

// Span is the time of one phase of a node. If Node is empty, it is a phase of the whole run.
type Span struct {
	Phase      event.Phase `json:"phase"`
	Node       string      `json:"node,omitempty"`
	Start      Seconds     `json:"start"`
	Took       Seconds     `json:"took"`
	Text       string      `json:"text,omitempty"`
	Failed     bool        `json:"failed,omitempty"`
	Unfinished bool        `json:"unfinished,omitempty"` // no end of the phase is recorded
	Steps      []Step      `json:"steps,omitempty"`      // for the phase check: the conditions that held, one after the other
}

// Step is a condition of the phase check, and how long the run waited until it held.
type Step struct {
	Name string  `json:"name"`
	Took Seconds `json:"took"`
}

func (s Span) end() Seconds { return s.Start + s.Took }

// Seconds is a duration that is encoded in JSON as a number of seconds.
type Seconds time.Duration

func (s Seconds) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

func (s Seconds) String() string {
	d := time.Duration(s)
	if d < time.Minute-50*time.Millisecond {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	d = d.Round(time.Second)
	if d < time.Hour {
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

func ExplainRun(run *runs.Run) (Report, error) {
	events, damaged, err := run.Events()
	if err != nil {
		return Report{}, err
	}
	last := run.Started
	if run.Ended != nil {
		last = *run.Ended
	}
	for _, e := range events { // the end of a killed run is not recorded
		if e.Time.After(last) {
			last = e.Time
		}
	}
	r := makeReport(events, run.Started, last)
	r.Run, r.Status, r.Damaged = run.ID, run.Status(), damaged
	return r, nil
}

// makeReport computes the report of the events of a run that lasted from first to last.
func makeReport(events []event.Event, first, last time.Time) Report {
	total := Seconds(max(0, last.Sub(first)))
	r := Report{Started: first, Total: total, Phases: []Span{}, Nodes: []Node{}, Critical: []Span{}}
	nodes := map[string][]Span{}
	for _, s := range pairSpans(events, first, total) {
		if s.Node == "" {
			r.Phases = append(r.Phases, s)
		} else {
			nodes[s.Node] = append(nodes[s.Node], s)
		}
	}
	for name, spans := range nodes {
		r.Nodes = append(r.Nodes, Node{name, spans, busyTime(spans)})
	}
	slices.SortFunc(r.Nodes, func(a, b Node) int { return cmp.Or(cmp.Compare(b.Busy, a.Busy), cmp.Compare(a.Node, b.Node)) })
	r.Critical = findCriticalPath(leafSpans(r), total)
	r.Other = total
	for _, s := range r.Critical {
		r.Other -= s.Took
	}
	return r
}

// pairSpans pairs the start event of each phase with its end event, and returns the spans ordered by start.
// It ignores an end event without a start event: the recorded line of the start event may be damaged. The time in which the user answered
// a question is a phase of the whole run.
func pairSpans(events []event.Event, first time.Time, total Seconds) []Span {
	// The clock may be changed during a run, so all times are limited to the time of the run.
	since := func(t time.Time) Seconds { return min(max(0, Seconds(t.Sub(first))), total) }
	var out []Span
	open := map[[2]string]int{} // by phase and node: the index in out
	for _, e := range events {
		k := [2]string{string(e.Phase), e.Node}
		i, begun := open[k]
		switch e.Kind {
		case event.PhaseStart, event.NodeStart:
			if begun {
				out[i].Took, out[i].Unfinished = max(0, since(e.Time)-out[i].Start), true
			}
			open[k] = len(out)
			out = append(out, Span{Phase: e.Phase, Node: e.Node, Start: since(e.Time)})
		case event.Answer:
			begin := since(e.Since)
			out = append(out, Span{Phase: event.Phase(e.Kind), Start: begin, Took: max(0, since(e.Time)-begin)})
		case event.Progress:
			if begun && e.Phase == event.Check && e.Done > len(out[i].Steps) {
				out[i].addStep(e.Text, since(e.Time))
			}
		case event.PhaseEnd, event.NodeEnd:
			if begun {
				out[i].Took, out[i].Failed, out[i].Text = max(0, since(e.Time)-out[i].Start), e.Failed, e.Text
				delete(open, k)
			}
		}
	}
	for _, i := range slices.Sorted(maps.Values(open)) {
		out[i].Took, out[i].Unfinished = total-out[i].Start, true
	}
	slices.SortStableFunc(out, func(a, b Span) int { return cmp.Compare(a.Start, b.Start) })
	return out
}

// addStep adds the step that ended at this time. The step began when the previous step ended.
func (s *Span) addStep(name string, end Seconds) {
	begin := s.Start
	for _, step := range s.Steps {
		begin += step.Took
	}
	s.Steps = append(s.Steps, Step{Name: name, Took: max(0, end-begin)})
}

// busyTime returns the time in which at least one span was running. The spans must be ordered by start.
func busyTime(spans []Span) (busy Seconds) {
	var until Seconds
	for _, s := range spans {
		if from := max(s.Start, until); s.end() > from {
			busy += s.end() - from
			until = s.end()
		}
	}
	return busy
}

// nodePhases maps a phase of the whole run to the phases of single nodes that are parts of it.
var nodePhases = map[event.Phase][]event.Phase{
	event.Provision: {event.Boot},
	event.Deploy:    {event.Copy, event.Keys, event.Activate, event.Confirm},
}

// leafSpans returns the spans that contain no other spans. These are all spans of nodes, and those spans of the whole run for whose
// phase, and for whose nodePhases, no node has a span. A build may begin while other systems are evaluated. Its span then begins only
// when the evaluation has ended, because the build waits for the evaluation until then.
func leafSpans(r Report) []Span {
	var out []Span
	var evaluated Seconds
	for _, s := range r.Phases {
		if s.Phase == event.Evaluate {
			evaluated = max(evaluated, s.end())
		}
	}
	byNodes := map[event.Phase]bool{}
	for _, n := range r.Nodes {
		for _, s := range n.Spans {
			byNodes[s.Phase] = true
		}
		out = append(out, n.Spans...)
	}
	for _, s := range r.Phases {
		if wait := evaluated - s.Start; s.Phase == event.Build && wait > 0 {
			s.Start, s.Took = evaluated, s.Took-wait
		}
		if !byNodes[s.Phase] && !slices.ContainsFunc(nodePhases[s.Phase], func(p event.Phase) bool { return byNodes[p] }) {
			out = append(out, s)
		}
	}
	return out
}

// findCriticalPath returns the critical path of a run: the spans that determined its duration, in the order of time. Each span of the
// path ends before the next span begins, so the sum of the spans is never longer than the run.
func findCriticalPath(spans []Span, total Seconds) []Span {
	// If a phase A ended at most `near` before a phase B began, B is assumed to have waited for A.
	near := min(max(total/100, Seconds(time.Millisecond)), Seconds(50*time.Millisecond))
	path := []Span{}
	node := ""
	for t := total; ; {
		// rank orders the spans by how likely the path's step that begins at t, on this node, has waited for them; 0: it has not. A node
		// waits for its own phases and for phases of the whole run, and seldom for other nodes.
		rank := func(s Span) int {
			switch own, ended := s.Node == node, s.end() <= t; {
			case s.Took <= 0 || s.Start >= t:
				return 0
			case ended && t-s.end() > near:
				return 1
			case ended && node != "" && own:
				return 6
			case ended && node != "" && s.Node == "":
				return 5
			case ended:
				return 4
			case s.Node == "":
				return 3
			case own:
				return 2
			}
			return 0
		}
		var step Span
		for _, s := range spans {
			if cmp.Or(cmp.Compare(rank(s), rank(step)), cmp.Compare(min(s.end(), t), min(step.end(), t)), cmp.Compare(s.Took, step.Took), cmp.Compare(step.Node, s.Node), cmp.Compare(step.Phase, s.Phase)) > 0 {
				step = s
			}
		}
		if rank(step) == 0 {
			slices.Reverse(path)
			return path
		}
		step.Took = min(step.end(), t) - step.Start
		path = append(path, step)
		t, node = step.Start, step.Node
	}
}
