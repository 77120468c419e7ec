package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/explain"
	"github.com/nixbench/nixbench/deploy/report/frame"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
	"github.com/nixbench/nixbench/nixeval"
)

// page is the input of the template: texts and positions. The template computes nothing.
type page struct {
	Title, Date, Status, Result, Took, Error string
	Names                                    []string // names of the run's nodes
	Changes                                  []change
	Trend                                    []trendRun
	Facts                                    []frame.Fact
	Counts                                   []count
	Compare                                  *comparison
	Chart                                    *chart
	Path, Short                              []step // steps of the critical path; those in Short take less than 1 % of the time
	ShortTook                                string
	Other                                    *step
	Overlap                                  string
	Units                                    []unit
	Nodes                                    []node
	Warnings                                 []warning
	MoreWarnings                             int
	Damaged                                  int
}

type count struct {
	N       int
	Outcome state.Outcome
}

// step is a step of the critical path, or a phase of a node.
type step struct {
	Phase event.Phase
	Node  string
	At    string
	Took  string
	X     string // position of the bar in percent of the chart, such as 12.500%
	Width string // width of the bar in percent of the chart
	Share string // the step's part of the run's time, such as 13 %
	Text  string
}

// outcomes contains the outcomes of nodes, in the order in which the page shows their counts.
var outcomes = []state.Outcome{state.Switched, state.Unchanged, state.RolledBack, state.Failed, state.Skipped}

// newPage computes all texts and positions of the page about a run. before is an earlier run for comparison, or nil.
func newPage(s Subject, before *Subject) page {
	r := s.Run
	p := page{
		Title: describeRun(s), Date: formatTime(r.Started), Status: string(r.Status()), Result: describeResult(r), Took: s.Time.Total.String(), Error: mergeProblems(r),
		Facts: listFacts(s), Counts: countOutcomes(r), Chart: newChart(s.Time), Units: listUnits(s), Nodes: listNodes(s), Damaged: s.Time.Damaged,
		Changes: listChanges(s.Changes), Trend: listTrend(s),
	}
	for _, n := range p.Nodes {
		p.Names = append(p.Names, n.Name)
	}
	slices.SortFunc(p.Names, nixeval.CompareNatural)
	p.Names = abbreviateNames(p.Names, 8)
	p.Warnings, p.MoreWarnings = listWarnings(s, p.Error)
	p.addCriticalPath(s.Time)
	if len(p.Path) > 0 && s.Time.Other > 0 {
		p.Other = &step{Took: s.Time.Other.String(), Width: formatPercent(s.Time.Other, s.Time.Total), Share: formatShare(s.Time.Other, s.Time.Total)}
	}
	if o := s.Time.Overlap; o != nil {
		p.Overlap = fmt.Sprintf("Images and boot took %s, evaluation and build %s; together %s.", o.Boot, o.Evaluate, o.Wall)
	}
	if before != nil {
		p.Compare = compareRuns(s, *before)
	}
	return p
}

// addCriticalPath adds the steps of the critical path to p.Path. Steps that took less than 1 % of the run's time go to p.Short instead.
func (p *page) addCriticalPath(t explain.Report) {
	var short explain.Seconds
	for _, c := range t.Critical {
		one := step{
			Phase: c.Phase, Node: c.Node, At: c.Start.String(), Took: c.Took.String(),
			X: formatPercent(c.Start, t.Total), Width: formatPercent(c.Took, t.Total), Share: formatShare(c.Took, t.Total), Text: c.Text,
		}
		if c.Took < t.Total/100 {
			p.Short = append(p.Short, one)
			short += c.Took
		} else {
			p.Path = append(p.Path, one)
		}
	}
	p.ShortTook = short.String()
}

// describeRun returns the title: the cluster, the command, and the number of nodes.
func describeRun(s Subject) string {
	text := fmt.Sprintf("%s: %s", s.Cluster, s.Run.Command)
	switch n := len(s.nodeNames()); n {
	case 0:
		return text
	case 1:
		return text + " on 1 node"
	default:
		return fmt.Sprintf("%s on %d nodes", text, n)
	}
}

// listFacts returns the facts about the run at the top of the page.
func listFacts(s Subject) []frame.Fact {
	r := s.Run
	out := []frame.Fact{
		{Name: "Command", Text: strings.Join(append([]string{"nixbench"}, r.Args...), " "), Code: true},
		{Name: "Started", Text: formatTime(r.Started)},
	}
	if r.Ended != nil {
		out = append(out, frame.Fact{Name: "Ended", Text: formatTime(*r.Ended)})
	}
	out = append(out, frame.Fact{Name: "Hive", Text: r.Hive, Code: true})
	if r.Scheduler != "" {
		out = append(out, frame.Fact{Name: "Scheduler", Text: r.Scheduler})
	}
	if r.Revision != "" {
		out = append(out, frame.Fact{Name: "Git revision", Text: r.Revision, Code: true})
	}
	out = append(out,
		frame.Fact{Name: "By", Text: r.Holder.Process()},
		frame.Fact{Name: "nixbench", Text: r.Nixbench},
		frame.Fact{Name: "Run", Text: r.ID, Code: true})
	return out
}

func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func describeResult(r *runs.Run) string {
	switch s := r.Status(); {
	case s == runs.StatusRunning:
		return "still running"
	case r.Exit == nil:
		return "ended without a message"
	case *r.Exit == 0:
		return "done"
	default:
		return fmt.Sprintf("%s, exit code %d", s, *r.Exit)
	}
}

// countOutcomes returns how many nodes have each outcome.
func countOutcomes(r *runs.Run) []count {
	n := r.Summary().Nodes
	var out []count
	for _, o := range outcomes {
		if n[o] > 0 {
			out = append(out, count{n[o], o})
			delete(n, o)
		}
	}
	for _, r := range r.Nodes { // add the outcomes that this version does not know, in the order of the nodes
		if n[r.Outcome] > 0 {
			out = append(out, count{n[r.Outcome], r.Outcome})
			delete(n, r.Outcome)
		}
	}
	return out
}

// formatPercent returns part as a percentage of whole, in the syntax of CSS and SVG.
func formatPercent(part, whole explain.Seconds) string {
	return frame.Percent(float64(part), float64(whole))
}

func formatShare(part, whole explain.Seconds) string {
	if whole <= 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f %%", 100*float64(part)/float64(whole))
}

func formatBytes(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/unit, 0
	for ; f >= unit && i < 3; i++ {
		f /= unit
	}
	return fmt.Sprintf("%.1f %s", f, []string{"KiB", "MiB", "GiB", "TiB"}[i])
}
