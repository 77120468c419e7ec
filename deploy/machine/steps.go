package machine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
	"github.com/nixbench/nixbench/nixeval"
)

// steps executes one operation, such as the removal, on the machines of several nodes. It sends the events of the operation, and writes
// the result of each node into the record of the run.
type steps struct {
	send     event.Sink
	record   *runs.Recorder
	phase    event.Phase // the phase of the whole operation
	step     event.Phase // what is done with each machine
	parallel int         // maximum number of machines that are changed at the same time; 0: no limit
}

// run calls change for the nodes of the first group, several at once, then for the nodes of the second group, and so on. change returns
// what it has done. If it fails for a node, the later groups are skipped. The error joins the errors of the nodes.
func (s steps) run(ctx context.Context, groups [][]nixeval.Node, change func(context.Context, nixeval.Node) (state.Outcome, error)) ([]state.NodeResult, error) {
	total := len(slices.Concat(groups...))
	s.send.Send(event.Event{Kind: event.PhaseStart, Phase: s.phase, Total: total})
	results := []state.NodeResult{}
	var errs []error
	counts := map[state.Outcome]int{}
	report := func(n nixeval.Node, outcome state.Outcome, text string, err error) {
		r := state.NodeResult{Node: n.Name, Unit: n.Unit, Outcome: outcome}
		if err != nil {
			r.Error, text = err.Error(), "failed: "+fleet.Brief(n.Name, err)
		}
		s.record.RecordResult(r)
		results = append(results, r)
		counts[outcome]++
		s.send.Send(event.Event{Kind: event.NodeResult, Phase: s.step, Node: n.Name, Text: text, Failed: err != nil || outcome == state.Skipped})
	}
	for _, group := range groups {
		if len(errs) > 0 {
			for _, n := range group {
				report(n, state.Skipped, "skipped: an earlier machine failed", nil)
			}
			continue
		}
		for _, o := range fleet.Each(ctx, group, s.parallel, func(ctx context.Context, n nixeval.Node) (state.Outcome, error) {
			s.send.Send(event.Event{Kind: event.NodeStart, Phase: s.step, Node: n.Name})
			outcome, err := change(ctx, n)
			s.send.Send(event.Event{Kind: event.NodeEnd, Phase: s.step, Node: n.Name, Failed: err != nil})
			return outcome, err
		}) {
			if o.Err == nil {
				report(o.Node, o.Value, string(o.Value), nil)
				continue
			}
			if ctx.Err() != nil && errors.Is(o.Err, context.Canceled) {
				o.Err = context.Cause(ctx) // the error says only that the context was cancelled; the cause says why
			}
			errs = append(errs, o.Err)
			report(o.Node, state.Failed, "", o.Err)
		}
	}
	var parts []string
	for _, outcome := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[outcome], outcome))
	}
	s.send.Send(event.Event{Kind: event.PhaseEnd, Phase: s.phase, Total: total, Failed: len(errs) > 0, Text: strings.Join(parts, ", ")})
	return results, errors.Join(errs...)
}
