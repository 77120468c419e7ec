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
		r, t := results[name], times[name]
		n := node{
			Name: name, Unit: r.Unit, Outcome: r.Outcome, Text: texts[name], Error: r.Error, Path: r.Path,
			Open: r.Outcome == state.Failed || r.Outcome == state.RolledBack,
		}
		switch {
		case n.Open && names(problems, name):
			n.Text = ""
		case n.Text == "":
			n.Text = firstLine(n.Error)
		}
		if n.Error == n.Text || strings.Contains(problems, n.Error) { // it is on the page already
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

// unit is a row of the table of closures: a closure, the names of its units, and the nodes with this closure.
type unit struct {
	Name, Path, Size, Copied string
	Nodes                    []string
	Width                    string
	size                     int64
}

// listUnits returns the different closures of a run. If a node had all paths of the closure before, no size
// is recorded for this node. The size of a closure is therefore the largest size recorded for its nodes.
func listUnits(s Subject) []unit {
	type copied struct {
		nodes, paths int
		bytes, size  int64
	}
	sizes := map[string]copied{} // by node
	for _, e := range s.Events {
		c := sizes[e.Node]
		switch {
		case e.Phase != event.Copy:
			continue
		case e.Kind == event.NodeEnd:
			_, _ = fmt.Sscanf(e.Text, "%d paths", &c.paths)
			c.bytes, c.size = int64(e.Done), int64(e.Total)
		default:
			continue
		}
		sizes[e.Node] = c
	}
	var order []string
	at := map[string]*unit{}
	names, members := map[string][]string{}, map[string][]string{}
	sums := map[string]copied{}
	for _, n := range s.Run.Nodes {
		if n.Path == "" {
			continue
		}
		key := n.Path
		if at[key] == nil {
			order = append(order, key)
			at[key] = &unit{Path: n.Path}
		}
		if !slices.Contains(names[key], n.Unit) {
			names[key] = append(names[key], n.Unit)
		}
		members[key] = append(members[key], n.Node)
		c, sum := sizes[n.Node], sums[key]
		if c.paths > 0 {
			sum.nodes++
			sum.paths += c.paths
			sum.bytes += c.bytes
		}
		sum.size = max(sum.size, c.size)
		sums[key] = sum
	}
	var out []unit
	var largest int64
	for _, key := range order {
		u, sum := *at[key], sums[key]
		u.size, u.Size, u.Copied = sum.size, "–", "nothing"
		if sum.size > 0 {
			u.Size = formatBytes(sum.size)
		}
		if sum.paths > 0 {
			u.Copied = fmt.Sprintf("%d paths, %s", sum.paths, formatBytes(sum.bytes))
			if sum.bytes == 0 { // the size is unknown: the run is from a version of nixbench that did not record sizes
				u.Copied = fmt.Sprintf("%d paths", sum.paths)
			}
			if sum.nodes > 1 {
				u.Copied += fmt.Sprintf(" to %d nodes", sum.nodes)
			}
		}
		slices.SortFunc(names[key], nixeval.CompareNatural)
		slices.SortFunc(members[key], nixeval.CompareNatural)
		u.Name, u.Nodes = strings.Join(abbreviateNames(names[key], 3), ", "), abbreviateNames(members[key], 6)
		largest = max(largest, u.size)
		out = append(out, u)
	}
	for i := range out {
		out[i].Width = formatPercent(explain.Seconds(out[i].size), explain.Seconds(largest))
	}
	slices.SortStableFunc(out, func(a, b unit) int { return nixeval.CompareNatural(a.Name, b.Name) })
	return out
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
