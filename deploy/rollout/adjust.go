package rollout

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
)

// AdjustError means that settings of members, such as labels, could not be changed to those of the hive. These settings are not
// part of the members' systems, and the systems are deployed.
type AdjustError struct{ Err error }

func (e *AdjustError) Error() string { return e.Err.Error() }

// Kind implements [failure.Classified].
func (e *AdjustError) Kind() failure.Kind { return failure.Check }
func (e *AdjustError) Unwrap() error      { return e.Err }

// Hint returns a text for the user: how to fix the error.
func (e *AdjustError) Hint() string {
	return "run nixbench apply again; it changes only these settings"
}

// adjustMembers changes settings of members, such as labels, to the values in the hive. These settings are not part of the
// members' systems.
func (cluster Cluster) adjustMembers(ctx context.Context, nodes []string) error {
	if len(nodes) == 0 {
		return nil
	}
	for _, e := range cluster.engines {
		adjuster, ok := e.(engine.Adjuster)
		if !ok {
			continue
		}
		wait := cluster.send.Wait(event.Event{Phase: event.Deploy, Text: "the cluster to apply the hive's settings of its members"})
		changes, err := adjuster.Adjust(ctx, nodes, false)
		wait.End()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return &AdjustError{Err: err}
		}
		for _, line := range AdjustmentLines(changes) {
			cluster.send.Send(event.Event{Kind: event.Message, Level: "note", Text: line})
		}
	}
	return nil
}

// AdjustmentLines returns one line for each different list of changes. The line begins with the names of all nodes for which the
// list is the same.
func AdjustmentLines(changes map[string][]string) []string {
	nodes := map[string][]string{}
	var texts []string
	for _, node := range slices.Sorted(maps.Keys(changes)) {
		text := strings.Join(changes[node], ", ")
		if nodes[text] == nil {
			texts = append(texts, text)
		}
		nodes[text] = append(nodes[text], node)
	}
	lines := make([]string, len(texts))
	for i, text := range texts {
		lines[i] = strings.Join(nodes[text], ", ") + ": " + text
	}
	return lines
}

// PreviewAdjustments returns the changes that adjustMembers would make, by node name.
func PreviewAdjustments(ctx context.Context, engines []engine.Engine, nodes []string, send event.Sink) map[string][]string {
	out := map[string][]string{}
	for _, e := range engines {
		adjuster, ok := e.(engine.Adjuster)
		if !ok {
			continue
		}
		changes, err := adjuster.Adjust(ctx, nodes, true)
		if err != nil {
			reporter{send}.warn("", err)
		}
		for node, lines := range changes {
			out[node] = append(out[node], lines...)
		}
	}
	return out
}
