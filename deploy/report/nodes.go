package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/explain"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// node is the section of a node on the page.
type node struct {
	Name, Unit, Text, Error, Generation, Path, Took string
	Outcome                                         state.Outcome
	Spans                                           []step
	Log                                             *LogTail
	Open                                            bool // the section is unfolded, because the node failed or was rolled back
}

// listNodes returns the sections of all nodes. Nodes that failed or were rolled back come first.
func listNodes(s Subject) []node {
	results := map[string]state.NodeResult{}
	for _, n := range s.Run.Nodes {
		results[n.Node] = n
	}
	times := map[string]explain.Node{}
	for _, n := range s.Time.Nodes {
		times[n.Node] = n
	}
	texts := map[string]string{}
	for _, e := range s.Events {
		if e.Kind == event.NodeResult {
			texts[e.Node] = e.Text
		}
	}
	problems := mergeProblems(s.Run)
	var out []node
	for _, name := range s.nodeNames() {
		n := describeNode(name, results[name], times[name], texts[name], problems)
		if log, ok := s.Logs[name]; ok {
			n.Log = &log
		}
		out = append(out, n)
	}
	slices.SortStableFunc(out, func(a, b node) int { // nodes that failed or were rolled back are first
		if a.Open != b.Open {
			if a.Open {
				return -1
			}
			return 1
		}
		return nixeval.CompareNatural(a.Name, b.Name)
	})
	return out
}

// describeNode returns the section of a node from the node's result, its phases and the text of its last event. It does not add the node's
// log. problems are the texts that the page already contains, and are not repeated.
func describeNode(name string, r state.NodeResult, t explain.Node, text, problems string) node {
	n := node{
		Name: name, Unit: r.Unit, Outcome: r.Outcome, Text: text, Error: r.Error, Path: r.Path,
		Open: r.Outcome == state.Failed || r.Outcome == state.RolledBack,
	}
	switch {
	case n.Open && names(problems, name):
		n.Text = ""
	case n.Text == "":
		n.Text = firstLine(n.Error)
	}
	if n.Error == n.Text || strings.Contains(problems, n.Error) {
		n.Error = ""
	}
	if r.After > 0 {
		n.Generation = fmt.Sprintf("%d → %d", r.Before, r.After)
		if r.Before == 0 {
			n.Generation = fmt.Sprintf("%d, the first", r.After)
		}
	}
	if len(t.Spans) > 0 {
		n.Took = t.Busy.String()
	}
	for _, span := range t.Spans {
		text := span.Text
		switch {
		case span.Failed && names(problems, name):
			text = "failed"
		case span.Failed:
			text = strings.TrimPrefix(text+", failed", ", ")
		case span.Unfinished:
			text = strings.TrimPrefix(text+", never ended", ", ")
		}
		n.Spans = append(n.Spans, step{Phase: span.Phase, At: span.Start.String(), Took: span.Took.String(), Text: text})
	}
	return n
}

// abbreviateNames returns names if there are at most `most`. Otherwise it returns `most` texts: the first names,
// and the number of the names that are left out.
func abbreviateNames(names []string, most int) []string {
	if len(names) <= most {
		return names
	}
	return append(slices.Clone(names[:most-1]), fmt.Sprintf("%d more", len(names)-most+1))
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
