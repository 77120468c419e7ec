package report

import (
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
)

// mergeProblems returns the text about all failures of a run. Each failure occurs once. The text begins with the run's own error, in
// which a line about a node is replaced by the error of the node. Then the errors of the other nodes follow.
func mergeProblems(r *runs.Run) string {
	lines := strings.Split(r.Error, "\n")
	for _, n := range r.Nodes {
		if n.Outcome != state.Failed && n.Outcome != state.RolledBack || n.Error == "" || strings.Contains(strings.Join(lines, "\n"), n.Error) {
			continue
		}
		if i := slices.IndexFunc(lines, func(line string) bool { return line == firstLine(n.Error) || isAbout(line, n.Node) }); i >= 0 {
			lines[i] = n.Error
		} else {
			lines = append(lines, n.Error)
		}
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n")
}

// isAbout reports whether a line of an error message is about a node: it begins with the name of the node and a colon.
func isAbout(line, node string) bool { return node != "" && strings.HasPrefix(line, node+": ") }

// names reports whether problems, the text about the failures of a run, has a line about a node.
func names(problems, node string) bool {
	return slices.ContainsFunc(strings.Split(problems, "\n"), func(line string) bool { return isAbout(line, node) })
}

// isRepeated reports whether problems, the text about the failures of the run, already contains what the event e reports.
func isRepeated(problems string, e event.Event) bool {
	if problems == "" {
		return false
	}
	if e.Text == "" || strings.Contains(problems, e.Text) {
		return e.Node == "" || strings.Contains(problems, e.Node)
	}
	return e.Failed && names(problems, e.Node) // true if the text contains a line about the node that failed
}
