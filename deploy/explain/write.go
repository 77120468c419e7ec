package explain

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/state/runs"
)

const (
	maxShownNodes = 20  // maximum number of rows for nodes; one more line contains the number of hidden nodes
	minShare      = 100 // the critical path shows the steps that took at least this fraction of the run: 1/100
	maxName       = 20  // columns for the name of a node
	maxLine       = 80  // columns of a line
)

// Write writes the report as text, in lines of at most 80 columns.
func (r Report) Write(w io.Writer) {
	status := ""
	if r.Status != runs.StatusDone {
		status = string(r.Status) + "   "
	}
	fmt.Fprintf(w, "%s   %s%s   %s\n\n", r.Run, status, event.Count(len(r.Nodes), "node"), r.Total)
	if len(r.Phases)+len(r.Nodes) > 0 {
		fmt.Fprintf(w, "%*s %9s\n", maxName+10, "start", "time")
	}
	for _, s := range r.Phases {
		r.writeRow(w, string(s.Phase), []Span{s}, s.Took, "")
	}
	if len(r.Nodes) > 0 && len(r.Phases) > 0 {
		fmt.Fprintln(w)
	}
	for _, n := range r.Nodes[:min(len(r.Nodes), maxShownNodes)] {
		longest := slices.MaxFunc(n.Spans, func(a, b Span) int { return cmp.Compare(a.Took, b.Took) })
		r.writeRow(w, n.Node, n.Spans, n.Busy, fmt.Sprintf("longest: %s %s", longest.Phase, longest.Took))
	}
	if more := len(r.Nodes) - maxShownNodes; more > 0 {
		fmt.Fprintf(w, "… and %d more nodes\n", more)
	}
	r.writePath(w)
	if r.Damaged > 0 {
		fmt.Fprintf(w, "lines of the record that are damaged: %d\n", r.Damaged)
	}
}

// writeRow writes a row about a phase of the run, or about a node: when its first span began, the time took, and a text.
func (r Report) writeRow(w io.Writer, name string, spans []Span, took Seconds, text string) {
	mark := " "
	switch {
	case slices.ContainsFunc(spans, func(s Span) bool { return s.Failed }):
		mark = "✗"
	case slices.ContainsFunc(spans, func(s Span) bool { return s.Unfinished && s.end() == r.Total }):
		mark = "…"
	}
	row := fmt.Sprintf("%s %9s %9s %s %s", padOrCut(name, maxName), spans[0].Start, took, mark, text)
	fmt.Fprintln(w, strings.TrimRight(row, " "))
}

// padOrCut adds spaces to s or cuts s, so that the result has exactly n columns.
func padOrCut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return fmt.Sprintf("%-*s", n, s)
}

// writePath writes the critical path: a line for each long step, with the conditions of a check, and one for all others.
func (r Report) writePath(w io.Writer) {
	if len(r.Critical) == 0 {
		return
	}
	line := func(name string, took Seconds) { fmt.Fprintf(w, "  %s%8s\n", padOrCut(name, maxLine-10), took) }
	fmt.Fprintln(w, "\ncritical path")
	var shorter Seconds
	for _, s := range r.Critical {
		if s.Took < r.Total/minShare {
			shorter += s.Took
			continue
		}
		line(strings.TrimPrefix(s.Node+" ", " ")+string(s.Phase), s.Took)
		for _, step := range s.Steps {
			if step.Took >= Seconds(50*time.Millisecond) {
				line("  "+step.Name, step.Took)
			}
		}
	}
	if shorter > 0 {
		line("shorter steps", shorter)
	}
	line("nixbench itself", r.Other)
}
