package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/explain"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
	"github.com/nixbench/nixbench/nixeval"
)

// logBytes is the maximum size of a node's log on a page. For a longer log, the page contains its end.
const logBytes = 8 << 10

type node struct {
	state.NodeResult
	Text       string // what the run did on the node
	Generation string
	Time       explain.Node
	Log        string // the last lines of the node's log
	LogIsCut   bool
	Open       bool // the section is unfolded, because the node failed or was rolled back
}

// listNodes returns the sections of the nodes that have a result or phases. Unfolded sections come first.
func listNodes(run *runs.Run, t explain.Report, events []event.Event) []node {
	sections := map[string]*node{}
	for _, r := range run.Nodes {
		sections[r.Node] = &node{NodeResult: r, Generation: describeGeneration(r), Open: r.Outcome == state.Failed || r.Outcome == state.RolledBack}
	}
	for _, n := range t.Nodes {
		if sections[n.Node] == nil {
			sections[n.Node] = &node{NodeResult: state.NodeResult{Node: n.Node}}
		}
		sections[n.Node].Time = n
	}
	for _, e := range events {
		if n := sections[e.Node]; n != nil && e.Kind == event.NodeResult {
			n.Text = e.Text
		}
	}
	logs := runs.Logs(events)
	var out []node
	for name, n := range sections {
		if n.Text == "" {
			n.Text, _, _ = strings.Cut(n.Error, "\n")
		}
		if n.Error == n.Text || strings.Contains(run.Error, n.Error) {
			n.Error = "" // the page already shows this error
		}
		n.Log, n.LogIsCut = cutLog(logs[name])
		out = append(out, *n)
	}
	slices.SortFunc(out, func(a, b node) int { return cmp.Or(a.rank()-b.rank(), nixeval.CompareNatural(a.Node, b.Node)) })
	return out
}

func (n node) rank() int {
	if n.Open {
		return 0
	}
	return 1
}

func describeGeneration(r state.NodeResult) string {
	switch {
	case r.After == 0:
		return ""
	case r.Before == 0:
		return fmt.Sprintf("%d, the first", r.After)
	}
	return fmt.Sprintf("%d → %d", r.Before, r.After)
}

// cutLog returns the last lines of a log, at most logBytes bytes. The bool reports whether the log is longer.
func cutLog(log string) (string, bool) {
	log = strings.TrimRight(log, "\n")
	if len(log) <= logBytes {
		return log, false
	}
	_, end, _ := strings.Cut(log[len(log)-logBytes:], "\n") // the first line may be incomplete
	return end, true
}
