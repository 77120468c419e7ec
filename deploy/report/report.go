// Package report writes one self-contained HTML page about a run. The page contains its style and drawings, has no
// scripts and loads no other files, so it can be mailed, printed and archived.
//
// html/template escapes all texts of hives and machines; no such text is marked as safe.
package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/explain"
	"github.com/nixbench/nixbench/deploy/packages"
	"github.com/nixbench/nixbench/deploy/report/frame"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
	"github.com/nixbench/nixbench/nixeval"
)

//go:embed page.html
var pageHTML string

// page is the input of the template.
type page struct {
	Title, Result string
	Run           *runs.Run
	Time          explain.Report
	Facts         []frame.Fact
	Chart         chart
	Path          []explain.Span // the longest steps of the critical path
	Short         int            // number of the other steps
	ShortTook     explain.Seconds
	Changes       []packages.Group // the changes that the run made in the systems of its nodes
	Warnings      []event.Event
	MoreWarnings  int // number of warnings that are not listed
	Nodes         []node
}

// Write writes the HTML page about a run to w.
func Write(w io.Writer, run *runs.Run) error {
	t, err := explain.ExplainRun(run)
	if err != nil {
		return err
	}
	events, _, err := run.Events()
	if err != nil {
		return err
	}
	p := page{Run: run, Time: t, Result: describeResult(run), Facts: listFacts(run), Chart: newChart(t), Nodes: listNodes(run, t, events)}
	p.Title = fmt.Sprintf("%s: %s on %s", run.Cluster(), run.Command, event.Count(len(p.Nodes), "node"))
	if p.Changes, err = run.Changes(); err != nil {
		return err
	}
	p.Path, p.Short, p.ShortTook = t.LongestSteps()
	p.Warnings, p.MoreWarnings = listWarnings(run, events)
	var b strings.Builder
	if err := frame.Render(&b, pageHTML, "", functions(t), p); err != nil {
		return err
	}
	_, err = io.WriteString(w, event.Printable(b.String())) // texts of nodes may contain control characters
	return err
}

func functions(t explain.Report) template.FuncMap {
	return template.FuncMap{
		"percent": func(s explain.Seconds) string { return frame.Percent(float64(s), float64(t.Total)) },
		"share":   func(s explain.Seconds) string { return fmt.Sprintf("%.0f %%", 100*float64(s)/float64(max(t.Total, 1))) },
		"since":   func(at time.Time) explain.Seconds { return explain.Seconds(max(0, at.Sub(t.Started))) },
		"growth":  event.Growth,
		"names":   func(names []string) string { return event.Abbreviate(names, ", ") },
	}
}

func describeResult(r *runs.Run) string {
	if r.Exit == nil || *r.Exit == 0 {
		return string(r.Status())
	}
	return fmt.Sprintf("%s, exit code %d", r.Status(), *r.Exit)
}

func listFacts(r *runs.Run) []frame.Fact {
	out := []frame.Fact{
		{Name: "Command", Text: strings.Join(append([]string{"nixbench"}, r.Args...), " "), Code: true},
		{Name: "Started", Text: formatTime(r.Started)},
	}
	if r.Ended != nil {
		out = append(out, frame.Fact{Name: "Ended", Text: formatTime(*r.Ended)})
	}
	out = append(out,
		frame.Fact{Name: "Hive", Text: r.Hive, Code: true},
		frame.Fact{Name: "Scheduler", Text: r.Scheduler},
		frame.Fact{Name: "Git revision", Text: r.Revision, Code: true},
		frame.Fact{Name: "By", Text: r.Holder.Process()},
		frame.Fact{Name: "nixbench", Text: r.Nixbench},
		frame.Fact{Name: "Run", Text: r.ID, Code: true})
	return slices.DeleteFunc(out, func(f frame.Fact) bool { return f.Text == "" })
}

func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// maxWarnings is the maximum number of warnings on a page.
const maxWarnings = 200

// listWarnings returns the first maxWarnings messages of the run that are warnings or errors, and the number of the other
// ones. It leaves out errors that the error of the run contains.
func listWarnings(run *runs.Run, events []event.Event) (out []event.Event, more int) {
	for _, e := range events {
		isError := e.Level == "error" && !strings.Contains(run.Error, e.Text)
		switch {
		case e.Kind != event.Message || e.Level != "warning" && !isError:
		case len(out) == maxWarnings:
			more++
		default:
			out = append(out, e)
		}
	}
	return out, more
}

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
	var unfolded, folded []node
	for _, name := range nixeval.SortedNames(sections) {
		n := sections[name]
		if n.Text == "" {
			n.Text, _, _ = strings.Cut(n.Error, "\n")
		}
		if n.Error == n.Text || strings.Contains(run.Error, n.Error) {
			n.Error = "" // the page already shows this error
		}
		n.Log, n.LogIsCut = cutLog(logs[name])
		if n.Open {
			unfolded = append(unfolded, *n)
		} else {
			folded = append(folded, *n)
		}
	}
	return append(unfolded, folded...)
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

// maxDrawnNodes is the maximum number of nodes in a chart.
const maxDrawnNodes = 60

// chart is the waterfall chart: a row of bars for each phase of the whole run, and for each node. The template computes the
// positions of bars in percent of the width, so that the chart fits phones, screens and paper, and texts are not stretched.
type chart struct {
	Ticks  []frame.Tick
	Phases []row
	Nodes  []row
	More   int           // number of nodes that are not drawn
	Legend []event.Phase // the phases of the chart, in the order of the rows
}

type row struct {
	Name   string
	Took   explain.Seconds
	Spans  []explain.Span // the bars, in the order in which they are drawn
	Failed bool
	Ticks  []frame.Tick
}

func newChart(r explain.Report) chart {
	c := chart{Ticks: makeTicks(r.Total)}
	newRow := func(name string, took explain.Seconds, spans []explain.Span) row {
		// Draw the short spans last, so that long spans do not hide them.
		sorted := slices.SortedStableFunc(slices.Values(spans), func(a, b explain.Span) int { return cmp.Compare(b.Took, a.Took) })
		for _, s := range spans {
			if !slices.Contains(c.Legend, s.Phase) {
				c.Legend = append(c.Legend, s.Phase)
			}
		}
		failed := slices.ContainsFunc(spans, func(s explain.Span) bool { return s.Failed })
		return row{name, took, sorted, failed, c.Ticks}
	}
	for _, s := range r.Phases {
		c.Phases = append(c.Phases, newRow(string(s.Phase), s.Took, []explain.Span{s}))
	}
	shown, more := r.SelectNodes(maxDrawnNodes)
	c.More = more
	for _, n := range shown {
		c.Nodes = append(c.Nodes, newRow(n.Node, n.Busy, n.Spans))
	}
	return c
}

// makeTicks returns the ticks of the time axis, at multiples of a round number: at most seven ticks, and for a run of more
// than a day up to 100.
func makeTicks(total explain.Seconds) []frame.Tick {
	every := time.Duration(0)
	for _, s := range []float64{0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400} {
		if every = time.Duration(s * float64(time.Second)); time.Duration(total)/every <= 6 {
			break
		}
	}
	var out []frame.Tick
	for t := time.Duration(0); t < time.Duration(total) && len(out) < 100; t += every {
		anchor := "middle"
		switch at := float64(t) / float64(total); {
		case t == 0:
			anchor = "start"
		case at > 0.94:
			anchor = "end"
		}
		out = append(out, frame.Tick{At: frame.Percent(float64(t), float64(total)), Anchor: anchor, Text: explain.Seconds(t).String()})
	}
	return out
}
