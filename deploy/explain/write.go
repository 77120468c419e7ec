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
	maxShownNodes = 20 // maximum number of rows for nodes; one more line contains the number of hidden nodes
	maxShownSteps = 12 // number of the longest steps of the critical path that are shown
	maxName       = 20 // columns for the name of a node
	maxLine       = 80 // columns of a line
)

// Write writes the report as text, in lines of at most 80 columns.
func (r Report) Write(w io.Writer) {
	r.writeHeader(w)
	if len(r.Phases)+len(r.Nodes) > 0 {
		fmt.Fprintf(w, "%*s %9s\n", maxName+10, "start", "time")
	}
	for _, s := range r.Phases {
		r.writeRow(w, string(s.Phase), []Span{s}, s.Took, "")
	}
	nodes, more := r.SelectNodes(maxShownNodes)
	if len(nodes) > 0 && len(r.Phases) > 0 {
		fmt.Fprintln(w)
	}
	for _, n := range nodes {
		longest := slices.MaxFunc(n.Spans, func(a, b Span) int { return cmp.Compare(a.Took, b.Took) })
		r.writeRow(w, n.Node, n.Spans, n.Busy, fmt.Sprintf("longest: %s %s", longest.Phase, longest.Took))
	}
	if more > 0 {
		fmt.Fprintf(w, "… and %d more nodes\n", more)
	}
	r.writePath(w)
	if r.Damaged > 0 {
		fmt.Fprintf(w, "lines of the record that are damaged: %d\n", r.Damaged)
	}
}

// writeHeader writes the line above the table: the run, its status, the number of nodes, and the duration.
func (r Report) writeHeader(w io.Writer) {
	var parts []string
	if r.Run != "" {
		parts = append(parts, r.Run)
	}
	if r.Status != "" && r.Status != runs.StatusDone {
		parts = append(parts, string(r.Status))
	}
	if n := len(r.Nodes); n > 0 {
		parts = append(parts, event.Count(n, "node"))
	}
	if len(r.Phases)+len(r.Nodes) == 0 {
		parts = append(parts, "no phases are recorded")
	}
	fmt.Fprintf(w, "%s\n\n", strings.Join(append(parts, r.Total.String()), "   "))
}

// SelectNodes returns the n nodes with the most time, in the order of r.Nodes, and the number of the other nodes.
func (r Report) SelectNodes(n int) (nodes []Node, more int) {
	if len(r.Nodes) <= n {
		return r.Nodes, 0
	}
	busiest := slices.SortedFunc(slices.Values(r.Nodes), func(a, b Node) int { return cmp.Compare(b.Busy, a.Busy) })
	for _, node := range r.Nodes {
		if node.Busy >= busiest[n-1].Busy && len(nodes) < n {
			nodes = append(nodes, node)
		}
	}
	return nodes, len(r.Nodes) - n
}

// LongestSteps returns the longest steps of the critical path in the order of time, and the number and the sum of the shorter steps.
// There are more steps than maxShownSteps if several took the same time.
func (r Report) LongestSteps() (steps []Span, shorter int, sum Seconds) {
	if len(r.Critical) == 0 {
		return nil, 0, 0
	}
	longest := slices.SortedFunc(slices.Values(r.Critical), func(a, b Span) int { return cmp.Compare(b.Took, a.Took) })
	shortest := longest[min(len(longest), maxShownSteps)-1].Took
	for _, s := range r.Critical {
		if s.Took < shortest {
			shorter++
			sum += s.Took
		} else {
			steps = append(steps, s)
		}
	}
	return steps, shorter, sum
}

// writeRow writes a row about a phase of the run, or about a node: when its first span began, the time took, and a text.
func (r Report) writeRow(w io.Writer, name string, spans []Span, took Seconds, text string) {
	mark := " "
	for _, s := range spans {
		switch {
		case s.Failed:
			mark = "✗"
		case s.Unfinished && s.end() == r.Total && mark == " ":
			mark = "…"
		}
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

// writePath writes the critical path: a line for each of the longest steps, with the conditions of a check, and one for all others.
func (r Report) writePath(w io.Writer) {
	if len(r.Critical) == 0 {
		return
	}
	line := func(name string, took Seconds) { fmt.Fprintf(w, "  %s%8s\n", padOrCut(name, maxLine-10), took) }
	fmt.Fprintln(w, "\ncritical path")
	steps, shorter, sum := r.LongestSteps()
	for _, s := range steps {
		line(strings.TrimPrefix(s.Node+" ", " ")+string(s.Phase), s.Took)
		for _, step := range s.Steps {
			if step.Took >= Seconds(50*time.Millisecond) {
				line("  "+step.Name, step.Took)
			}
		}
	}
	if shorter > 0 {
		line(fmt.Sprintf("%d shorter steps", shorter), sum)
	}
	line("nixbench itself", r.Other)
}
