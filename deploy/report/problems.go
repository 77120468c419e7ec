package report

import (
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/state"
)

// mergeProblems returns the text about all failures of a run, in which each failure occurs once: the run's own error, in which the
// first line of a node's error is replaced by the whole error, and then the errors of nodes that are not part of it.
func mergeProblems(r *state.Run) string {
	text := r.Error
	for _, n := range r.Nodes {
		if n.Outcome != state.Failed && n.Outcome != state.RolledBack || n.Error == "" || strings.Contains(text, n.Error) {
			continue
		}
		if first := firstLine(n.Error); strings.Contains(text, first) {
			text = strings.Replace(text, first, n.Error, 1)
			continue
		}
		text = strings.TrimPrefix(text+"\n"+n.Error, "\n")
	}
	return text
}

// isTold reports whether the text about the failures of the run already tells what an event reports.
func isTold(problems string, e event.Event) bool {
	if problems == "" {
		return false
	}
	if e.Text == "" || strings.Contains(problems, e.Text) {
		return e.Node == "" || strings.Contains(problems, e.Node)
	}
	for line := range strings.Lines(problems) { // the text of a node's event is often a part of a line about the node
		if e.Node != "" && strings.HasPrefix(line, e.Node+":") && e.Failed {
			return true
		}
	}
	return false
}
