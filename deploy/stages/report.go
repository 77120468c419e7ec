package stages

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// report writes a node's result to the record of the run, and sends it as an event.
func (d *Deployer) report(r rollout.Result) {
	text := r.Text
	if r.Err != nil {
		text = formatFailure(r)
	}
	d.Record.RecordResult(toNodeResult(r))
	d.Send.Send(event.Event{
		Kind: event.NodeResult, Phase: event.Deploy, Node: r.Node.Name, Text: text,
		Failed: r.Err != nil || r.Outcome == state.Skipped,
	})
}

func toNodeResult(r rollout.Result) state.NodeResult {
	if r.Err != nil {
		r.Error = r.Err.Error()
	}
	return r.NodeResult
}

// recordSkipped writes to the record of the run that all nodes were skipped. err is the reason.
func (d *Deployer) recordSkipped(nodes []nixeval.Node, err error) {
	for _, n := range nodes {
		d.Record.RecordResult(state.NodeResult{Node: n.Name, Unit: n.Unit, Outcome: state.Skipped, Error: err.Error()})
	}
}

// replaceResults returns results with the newer result of each node that has one, but with the Task and Activation in results.
func replaceResults(results, newer []rollout.Result) []rollout.Result {
	out := slices.Clone(results)
	for i, r := range out {
		if j := slices.IndexFunc(newer, func(n rollout.Result) bool { return n.Node.Name == r.Node.Name }); j >= 0 {
			out[i] = newer[j]
			out[i].Task, out[i].Activation = r.Task, r.Activation
		}
	}
	return out
}

// formatFailure formats a failed result in one line: `rolled back: unit nginx.service failed`.
func formatFailure(r rollout.Result) string {
	text := fleet.Brief(r.Node.Name, r.Err)
	switch r.Outcome {
	case state.RolledBack:
		return "rolled back: " + text
	case state.Skipped:
		return "skipped: " + strings.TrimPrefix(text, "skipped: ")
	}
	return "failed: " + text
}

// formatCounts formats how many nodes of a run had each outcome: `2 switched, 1 failed`. The words depend on the goal of the run.
func formatCounts(results []rollout.Result, goal node.Goal) string {
	counts := map[state.Outcome]int{}
	for _, r := range results {
		counts[r.Outcome]++
	}
	var parts []string
	for _, o := range []state.Outcome{state.Switched, node.Rebooted, state.Unchanged, state.RolledBack, state.Failed, state.Skipped} {
		if counts[o] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[o], goal.Describe(o)))
		}
	}
	return strings.Join(parts, ", ")
}
