package deploy

import (
	"context"
	"strings"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
)

// AdjustError says that settings of members which are not part of their systems, such as labels, could not be
// changed to those of the hive. Their systems are deployed.
type AdjustError struct{ Err error }

func (e *AdjustError) Error() string { return e.Err.Error() }

// Kind implements [failure.Classified].
func (e *AdjustError) Kind() failure.Kind { return failure.Check }
func (e *AdjustError) Unwrap() error      { return e.Err }

// Hint says what to do about it.
func (e *AdjustError) Hint() string {
	return "run nixbench apply again; it changes only these settings"
}

// adjustMembers changes settings of members that are not part of their systems, such as labels, to those of
// the hive.
func (r *run) adjustMembers(ctx context.Context, cluster clusterState, nodes []string) error {
	if len(nodes) == 0 {
		return nil
	}
	for _, e := range cluster.engines {
		adjuster, ok := e.(engine.Adjuster)
		if !ok {
			continue
		}
		wait := r.Send.Wait(event.Event{Phase: event.Deploy, Text: "the cluster to apply the hive's settings of its members"})
		changes, err := adjuster.Adjust(ctx, nodes, false)
		wait.End()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return &AdjustError{Err: err}
		}
		for _, line := range AdjustmentLines(changes) {
			r.Send.Send(event.Event{Kind: event.Message, Level: "note", Text: line})
		}
	}
	return nil
}

// AdjustmentLines returns one line per difference, with all nodes that have the same one.
func AdjustmentLines(changes map[string][]string) []string {
	nodes := map[string][]string{}
	var texts []string
	for _, node := range sortedKeys(changes) {
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

// previewAdjustments adds to the previews what adjustMembers would change. Before the first deployment there
// is no engine to ask.
func (d *Deployer) previewAdjustments(ctx context.Context, hive *nixeval.Hive, previews []Preview) error {
	var nodes []string
	deployed := false
	for _, p := range previews {
		nodes = append(nodes, p.Node)
		deployed = deployed || p.err == nil && p.From != "" && p.Action != WouldFirst
	}
	if !deployed || d.Engines == nil {
		return nil
	}
	engines, err := d.Engines.Of(hive, d.Fleet)
	if err != nil {
		return err
	}
	for _, e := range engines {
		adjuster, ok := e.(engine.Adjuster)
		if !ok {
			continue
		}
		changes, err := adjuster.Adjust(ctx, nodes, true)
		if err != nil {
			d.Send.Send(event.Event{Kind: event.Message, Level: "warning", Text: err.Error()})
		}
		for i, p := range previews {
			previews[i].Adjust = append(previews[i].Adjust, changes[p.Node]...)
		}
	}
	return nil
}
