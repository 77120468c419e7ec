package report

import (
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
	"github.com/nixbench/nixbench/deploy/state/runs"
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
