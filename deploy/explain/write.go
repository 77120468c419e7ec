package explain

import (
	"bytes"
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
	maxShownSteps = 12 // number of the longest steps of the critical path that are shown; more if several took the same time
	maxName       = 20 // columns for the name of a node
	barWidth      = 48
)

// shades are the characters for the phases in the bar of a node, in the order of the legend.
var shades = []struct {
	phase event.Phase
	shade rune
}{
	{event.Boot, '▄'}, {event.Connect, '·'}, {event.Copy, '▒'}, {event.Keys, '▪'}, {event.Activate, '█'}, {event.Confirm, '▓'}, {event.Check, '░'}, {event.Remove, '×'},
	{"", '▬'}, // every other phase
}

// shadeOf returns the index in shades of a phase.
func shadeOf(p event.Phase) int {
	for i, s := range shades {
		if s.phase == p {
			return i
		}
	}
	return len(shades) - 1
}

// Write writes the report as text, in lines of at most 80 columns.
func (r Report) Write(w io.Writer) error {
	var b bytes.Buffer
	r.writeHeader(&b)
	for _, s := range r.Phases {
		r.writeRow(&b, string(s.Phase), []Span{s}, s.Took, func(Span) rune { return '█' })
	}
	nodes, more := r.SelectNodes(maxShownNodes)
	if len(nodes) > 0 && len(r.Phases) > 0 {
		b.WriteString("\n")
	}
	used := map[int]bool{}
	for _, n := range nodes {
		r.writeRow(&b, n.Node, n.Spans, n.Busy, func(s Span) rune { return shades[shadeOf(s.Phase)].shade })
		for _, s := range n.Spans {
			used[shadeOf(s.Phase)] = true
		}
	}
	if more > 0 {
		fmt.Fprintf(&b, "… and %d more nodes\n", more)
	}
	var legend []string
	for i, s := range shades {
		if used[i] {
			legend = append(legend, fmt.Sprintf("%c %s", s.shade, cmp.Or(s.phase, "other")))
		}
	}
	if len(legend) > 0 {
		fmt.Fprintln(&b, strings.Join(legend, "  "))
	}
	r.writePath(&b)
	if r.Damaged > 0 {
		fmt.Fprintf(&b, "lines of the record that are damaged: %d\n", r.Damaged)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// writeHeader writes the line above the chart: the run, its status, the number of nodes, and the duration.
func (r Report) writeHeader(b *bytes.Buffer) {
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
	fmt.Fprintf(b, "%s\n\n", strings.Join(append(parts, r.Total.String()), "   "))
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

// writeRow writes a row of the chart: a name, the spans as a bar, and the time took. Each character
// of the bar stands for a part of the run's time, and shows the span that was running for most of this part.
func (r Report) writeRow(b *bytes.Buffer, name string, spans []Span, took Seconds, shade func(Span) rune) {
	cells := []rune(strings.Repeat(" ", barWidth))
	most := make([]float64, barWidth)
	mark := ""
	for _, s := range spans {
		switch {
		case s.Failed:
			mark = " ✗"
		case s.Unfinished && s.end() == r.Total && mark == "":
			mark = " …"
		}
		scale := barWidth / float64(max(r.Total, 1))
		from, to := float64(s.Start)*scale, float64(s.end())*scale
		for i := int(from); i < barWidth && (float64(i) < to || i == int(from)); i++ {
			part := min(to, float64(i+1)) - max(from, float64(i))
			if cells[i] == ' ' || part > most[i] {
				cells[i], most[i] = shade(s), part
			}
		}
	}
	fmt.Fprintf(b, "%s  %s%8s%s\n", padOrCut(name, maxName), string(cells), took, mark)
}

// padOrCut adds spaces to s or cuts s, so that the result has exactly n columns.
func padOrCut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return fmt.Sprintf("%-*s", n, s)
}

// writePath writes the critical path: a line for each of the longest steps, and one for all others. The conditions of a check follow
// its line.
func (r Report) writePath(b *bytes.Buffer) {
	if len(r.Critical) == 0 {
		return
	}
	line := func(name string, took Seconds) { fmt.Fprintf(b, "  %s%8s\n", padOrCut(name, maxName+barWidth), took) }
	b.WriteString("\ncritical path\n")
	longest := slices.SortedFunc(slices.Values(r.Critical), func(a, b Span) int { return cmp.Compare(b.Took, a.Took) })
	shortest := longest[min(len(longest), maxShownSteps)-1].Took // a step that took less time is not shown
	shorter, sum := 0, Seconds(0)
	for _, s := range r.Critical {
		if s.Took < shortest {
			shorter++
			sum += s.Took
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
		line(fmt.Sprintf("%d shorter steps", shorter), sum)
	}
	line("nixbench itself", r.Other)
	if o := r.Overlap; o != nil {
		fmt.Fprintf(b, "images and boot %s, evaluation and build %s: together %s\n", o.Boot, o.Evaluate, o.Wall)
	}
}
