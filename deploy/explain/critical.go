package explain

import (
	"cmp"
	"slices"
	"sort"
	"time"
)

// findCriticalPath returns the critical path of a run: the spans that determined its duration, in the order of time. Each span of the
// path ends before the next span begins, so the sum of the spans is never longer than the run.
func findCriticalPath(spans []Span, total Seconds) []Span {
	spans = slices.DeleteFunc(slices.Clone(spans), func(s Span) bool { return s.Took <= 0 })
	slices.SortFunc(spans, func(a, b Span) int {
		// Sort by end. Of several spans with the same end, the longest is the last one, so that lastEndedBefore returns it.
		return cmp.Or(cmp.Compare(a.end(), b.end()), cmp.Compare(b.Start, a.Start), cmp.Compare(b.Node, a.Node), cmp.Compare(b.Phase, a.Phase))
	})
	byNode := map[string][]Span{} // the spans of each node, ordered by end; key "": the spans of the whole run
	for _, s := range spans {
		byNode[s.Node] = append(byNode[s.Node], s)
	}
	// If a phase A ended at most `near` before a phase B began, B is assumed to have waited for A.
	near := min(max(total/100, Seconds(time.Millisecond)), Seconds(50*time.Millisecond))

	path := []Span{}
	node := ""
	for t := total; ; {
		last, ok := lastEndedBefore(spans, t)
		step := last
		// Look for a span that ended shortly before this span began. A node waits for phases of the whole run and for its own phases,
		// and seldom for other nodes.
		for _, name := range []string{"", node} {
			if previous, has := lastEndedBefore(byNode[name], t); node != "" && has && last.end()-previous.end() <= near {
				step = previous
			}
		}
		if !ok || t-step.end() > near {
			if s, running := findRunningSpan(byNode, node, t); running {
				s.Took = t - s.Start
				step, ok = s, true
			}
		}
		if !ok {
			break
		}
		path = append(path, step)
		t, node = step.Start, step.Node
	}
	slices.Reverse(path)
	return path
}

// lastEndedBefore returns the last of the spans, which must be ordered by end, that ended at t or earlier, and whether there is one.
func lastEndedBefore(spans []Span, t Seconds) (Span, bool) {
	i := sort.Search(len(spans), func(i int) bool { return spans[i].end() > t })
	if i == 0 {
		return Span{}, false
	}
	return spans[i-1], true
}

// findRunningSpan returns the longest span of the whole run (not of a node) that was running at t. If there is none, it
// returns the longest span of the node. It does not return spans of other nodes, because a node does not
// wait for other nodes. The bool is false if no span was found.
func findRunningSpan(byNode map[string][]Span, node string, t Seconds) (Span, bool) {
	for _, name := range []string{"", node} {
		var longest Span
		for _, s := range byNode[name] {
			if s.Start < t && t < s.end() && s.Took > longest.Took {
				longest = s
			}
		}
		if longest.Took > 0 {
			return longest, true
		}
	}
	return Span{}, false
}
