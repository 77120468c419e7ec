package deploy

import (
	"fmt"
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/state"
)

// reportResult writes a node's result to the record of the run, sends it as an event, and returns it with the
// message of err. text is the text of the event if err is nil; otherwise the text is made from err.
func (d *Deployer) reportResult(r state.NodeResult, text string, err error) state.NodeResult {
	if err != nil {
		r.Error = err.Error()
		text = formatFailure(r, err)
	}
	d.Record.Result(r)
	d.Send.Send(event.Event{
		Kind: event.NodeResult, Phase: event.Deploy, Node: r.Node, Text: text,
		Failed: err != nil || r.Outcome == state.Skipped,
	})
	return r
}

// formatFailure formats a failed result in one line: `rolled back: unit nginx.service failed (exit 4)`.
func formatFailure(r state.NodeResult, err error) string {
	text := fleet.Brief(r.Node, err)
	switch r.Outcome {
	case state.RolledBack:
		return "rolled back: " + text
	case state.Skipped:
		return "skipped: " + strings.TrimPrefix(text, "skipped: ")
	}
	return "failed: " + text
}

// formatOutcomeCounts formats the number of nodes per outcome: `2 switched, 1 failed`. word returns the
// word for an outcome.
func formatOutcomeCounts(outcomes []state.Outcome, word func(state.Outcome) string) string {
	order := []state.Outcome{state.Switched, node.Rebooted, state.Unchanged, state.RolledBack, state.Failed, state.Skipped}
	counts := map[state.Outcome]int{}
	for _, o := range outcomes {
		counts[o]++
	}
	var parts []string
	for _, o := range order {
		if counts[o] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[o], word(o)))
		}
	}
	return strings.Join(parts, ", ")
}

// formatResultCounts formats the number of results per outcome.
func formatResultCounts(results []state.NodeResult) string {
	var outcomes []state.Outcome
	for _, r := range results {
		outcomes = append(outcomes, r.Outcome)
	}
	return formatOutcomeCounts(outcomes, func(o state.Outcome) string { return string(o) })
}
