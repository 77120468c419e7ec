package explain

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/state/runs"
)

const (
	maxShownNodes = 20 // maximum number of rows for nodes; one more line contains the number of hidden nodes
	maxShownSteps = 12 // number of the longest steps of the critical path that are shown by name; more if several took the same time
	maxName       = 20 // columns for the name of a node
	timeWidth     = 8  // columns for a time
)

// shades are the characters for the phases in the bar of a node, in the order of the legend.
var shades = []struct {
	phase event.Phase
	shade rune
}{
	{event.Boot, '▄'}, {event.Connect, '·'}, {event.Copy, '▒'}, {event.Keys, '▪'}, {event.Activate, '█'}, {event.Confirm, '▓'}, {event.Check, '░'}, {event.Remove, '×'},
}

// shadeOf returns the character for a phase, and the position of the phase in the legend. Phases that are not in shades come first.
func shadeOf(p event.Phase) (shade rune, position int) {
	for i, s := range shades {
		if s.phase == p {
			return s.shade, i
		}
	}
	return '▬', -1
}

// Write writes the report as text in lines of at most width columns. The width 0 means 80. A smaller
// width than 40 means 40.
func (r Report) Write(w io.Writer, width int) error {
	if width <= 0 {
		width = 80
	}
	width = max(width, 40)
	var b bytes.Buffer
	r.writeHeader(&b, width)
	nodes, more := r.SelectNodes(maxShownNodes)
	label := len("evaluate")
	for _, s := range r.Phases {
		label = max(label, len(s.Phase))
	}
	for _, n := range nodes {
		label = max(label, min(len([]rune(n.Node)), maxName))
	}
	c := chart{total: r.Total, label: label, bar: width - label - 2 - timeWidth - 2}
	b.WriteString("\n")
	for _, s := range r.Phases {
		c.writeRow(&b, string(s.Phase), []Span{s}, s.Took, func(Span) rune { return '█' })
	}
	if len(nodes) > 0 {
		if len(r.Phases) > 0 {
			b.WriteString("\n")
		}
		for _, n := range nodes {
			c.writeRow(&b, n.Node, n.Spans, n.Busy, func(s Span) rune { shade, _ := shadeOf(s.Phase); return shade })
		}
		if more > 0 {
			fmt.Fprintf(&b, "… and %d more nodes\n", more)
		}
		b.WriteString(wrapParts("", describeShades(nodes), "  ", width))
	}
	if len(r.Critical) > 0 {
		b.WriteString("\n")
		b.WriteString(wrapParts("critical path: ", r.describePath(), " → ", width))
		for _, s := range r.Critical {
			if steps := describeSteps(s); len(steps) > 0 {
				b.WriteString(wrapParts(string(s.Phase)+": ", steps, " → ", width))
			}
		}
		if o := r.Overlap; o != nil {
			fmt.Fprintf(&b, "images and boot %s, evaluation and build %s: together %s\n", o.Boot, o.Evaluate, o.Wall)
		}
		fmt.Fprintf(&b, "our own time: %s (%.0f %%)\n", r.Other, 100*float64(r.Other)/float64(r.Total))
	}
	if r.Damaged > 0 {
		fmt.Fprintf(&b, "lines of the record that are damaged: %d\n", r.Damaged)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// writeHeader writes the line above the chart: the run, its status, the number of nodes, and the duration.
func (r Report) writeHeader(b *bytes.Buffer, width int) {
	parts := []string{}
	if r.Run != "" {
		parts = append(parts, r.Run)
	}
	switch r.Status {
	case "", runs.StatusDone:
	default:
		parts = append(parts, string(r.Status))
	}
	switch len(r.Nodes) {
	case 0:
	case 1:
		parts = append(parts, "1 node")
	default:
		parts = append(parts, fmt.Sprintf("%d nodes", len(r.Nodes)))
	}
	if len(r.Phases)+len(r.Nodes) == 0 {
		parts = append(parts, "no phases are recorded")
	}
	b.WriteString(wrapParts("", append(parts, r.Total.String()), "   ", width))
}

// SelectNodes returns at most n nodes, in the order of r.Nodes, and the number of nodes that were not
// selected. It prefers nodes on the critical path, then failed nodes, then the nodes with the most time.
func (r Report) SelectNodes(n int) (nodes []Node, more int) {
	if len(r.Nodes) <= n {
		return r.Nodes, 0
	}
	rank := map[string]int{}
	for _, n := range r.Nodes {
		for _, s := range n.Spans {
			if s.Failed || s.Unfinished {
				rank[n.Node] = 1
			}
		}
	}
	for _, s := range r.Critical {
		rank[s.Node] = 2
	}
	order := make([]int, len(r.Nodes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := r.Nodes[a], r.Nodes[b]
		return cmp.Or(rank[y.Node]-rank[x.Node], cmp.Compare(y.Busy, x.Busy))
	})
	order = order[:n]
	slices.Sort(order)
	for _, i := range order {
		nodes = append(nodes, r.Nodes[i])
	}
	return nodes, len(r.Nodes) - n
}

// chart writes rows of bars with a common time axis.
type chart struct {
	total      Seconds
	label, bar int
}

// writeRow writes a row of the chart: the name who, the spans as a bar, and the time took. Each character
// of the bar stands for a part of the run's time, and shows the span that was running for most of this part.
func (c chart) writeRow(b *bytes.Buffer, who string, spans []Span, took Seconds, shade func(Span) rune) {
	cells := []rune(strings.Repeat(" ", c.bar))
	most := make([]float64, c.bar)
	mark := ""
	for _, s := range spans {
		switch {
		case s.Failed:
			mark = " ✗"
		case s.Unfinished && s.end() == c.total && mark == "":
			mark = " …"
		}
		if c.total <= 0 {
			continue
		}
		scale := float64(c.bar) / float64(c.total)
		from, to := float64(s.Start)*scale, float64(s.end())*scale
		for i := int(from); i < c.bar && (float64(i) < to || i == int(from)); i++ {
			part := min(to, float64(i+1)) - max(from, float64(i))
			if cells[i] == ' ' || part > most[i] {
				cells[i], most[i] = shade(s), part
			}
		}
	}
	fmt.Fprintf(b, "%s  %s%*s%s\n", padOrCut(who, c.label), string(cells), timeWidth, took, mark)
}

// padOrCut adds spaces to s or cuts s, so that the result has exactly n columns.
func padOrCut(s string, n int) string {
	r := []rune(s)
	if len(r) > n {
		r = append(r[:n-1:n-1], '…')
	}
	return string(r) + strings.Repeat(" ", n-len(r))
}

// describeShades returns the legend of the chart: the character and the name of each phase of the nodes.
func describeShades(nodes []Node) []string {
	var phases []event.Phase
	for _, n := range nodes {
		for _, s := range n.Spans {
			if !slices.Contains(phases, s.Phase) {
				phases = append(phases, s.Phase)
			}
		}
	}
	slices.SortStableFunc(phases, func(a, b event.Phase) int {
		_, first := shadeOf(a)
		_, second := shadeOf(b)
		return first - second
	})
	var out []string
	for _, p := range phases {
		shade, _ := shadeOf(p)
		out = append(out, fmt.Sprintf("%c %s", shade, p))
	}
	return out
}

// describePath returns the steps of the critical path as texts. In a long path, the shorter steps between
// two long steps are replaced by their number and their total time.
func (r Report) describePath() []string {
	var shortest Seconds // a step that took less than this time is not shown by name
	if len(r.Critical) > maxShownSteps {
		longest := slices.SortedFunc(slices.Values(r.Critical), func(a, b Span) int { return cmp.Compare(b.Took, a.Took) })
		shortest = longest[maxShownSteps-1].Took
	}
	var out []string
	node := ""
	for i := 0; i < len(r.Critical); i++ {
		s, next := r.Critical[i], i+1
		sum := s.Took
		for ; s.Took < shortest && next < len(r.Critical) && r.Critical[next].Took < shortest; next++ {
			sum += r.Critical[next].Took
		}
		if n := next - i; n > 1 {
			out = append(out, fmt.Sprintf("… %d shorter %s", n, sum))
			node = "" // the text of the next step names the node again
			i = next - 1
			continue
		}
		text := string(s.Phase)
		if s.Node != "" && s.Node != node {
			text = padOrCut(s.Node, min(len([]rune(s.Node)), maxName)) + " " + text
		}
		out = append(out, text+" "+s.Took.String())
		node = s.Node
	}
	return out
}

// describeSteps returns the steps of a span as texts. It leaves out steps that took no time.
func describeSteps(s Span) []string {
	var out []string
	for _, step := range s.Steps {
		if took := step.Took.String(); took != "0.0s" {
			out = append(out, step.Name+" "+took)
		}
	}
	return out
}

// wrapParts joins head and the parts, separated by sep, in lines of at most width columns. It indents all
// lines after the first one.
func wrapParts(head string, parts []string, sep string, width int) string {
	var b strings.Builder
	b.WriteString(head)
	column := len([]rune(head))
	for i, p := range parts {
		if i > 0 {
			b.WriteString(sep)
			column += len([]rune(sep))
		}
		after := 0
		if i < len(parts)-1 {
			after = len([]rune(strings.TrimRight(sep, " ")))
		}
		if i > 0 && column+len([]rune(p))+after > width {
			s := strings.TrimRight(b.String(), " ")
			b.Reset()
			b.WriteString(s + "\n  ")
			column = 2
		}
		b.WriteString(p)
		column += len([]rune(p))
	}
	return strings.TrimRight(b.String(), " ") + "\n"
}
