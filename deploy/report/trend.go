package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/explain"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
)

// maxTrend is the maximum number of runs in the trend, which shows how long recent runs of the same command took.
const maxTrend = 10

// trendRun is a run in the trend: the section of the page about recent runs of the same command.
type trendRun struct {
	At, Took, Width, Nodes string
	Status                 runs.Status
	Current                bool // this is the run that the page is about
}

// listTrend returns the times of the recent runs, the oldest run first. It returns nil if there is only one run.
func listTrend(s Subject) []trendRun {
	if len(s.Recent) < 2 {
		return nil
	}
	var longest explain.Seconds
	for _, r := range s.Recent {
		longest = max(longest, tookOf(r))
	}
	var out []trendRun
	for _, r := range slices.Backward(s.Recent) {
		one := trendRun{At: r.Started.UTC().Format("01-02 15:04"), Took: "–", Width: "0%", Status: r.Status, Current: r.ID == s.Run.ID}
		if took := tookOf(r); took > 0 {
			one.Took, one.Width = took.String(), formatPercent(took, longest)
		}
		total := 0
		for _, n := range r.Nodes {
			total += n
		}
		changed := r.Nodes[state.Switched]
		one.Nodes = fmt.Sprintf("%d of %d changed", changed, total)
		out = append(out, one)
	}
	return out
}

func tookOf(r runs.Summary) explain.Seconds {
	took, _ := r.Took()
	return explain.Seconds(took.Round(time.Millisecond))
}
