package inspect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/nixeval"
)

// Nodes inspects every node with one login and one command for each node. It changes nothing. A node that cannot be reached does
// not delay the inspection of the others.
func Nodes(ctx context.Context, f *fleet.Fleet, nodes []nixeval.Node, parallel int, send event.Sink) []fleet.Outcome[activate.Node] {
	a := &activate.Activator{Send: f.EventSink()}
	send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Connect, Total: len(nodes)})
	out := fleet.Each(ctx, nodes, parallel, func(ctx context.Context, n nixeval.Node) (activate.Node, error) {
		h, err := f.Host(ctx, n)
		if err != nil {
			return activate.Node{}, err
		}
		return a.Inspect(ctx, n.Name, h, activate.Full)
	})
	text := event.Count(len(nodes), "node")
	failed := len(fleet.Errors(out))
	if failed > 0 {
		text = fmt.Sprintf("%d of %s cannot be inspected", failed, text)
	}
	send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Connect, Total: len(nodes), Failed: failed > 0, Text: text})
	return out
}

// FailureReasons returns the last error in the log of each failed systemd unit, by node and unit. It runs one command on each
// node that has failed systemd units.
func FailureReasons(ctx context.Context, f *fleet.Fleet, inspected []fleet.Outcome[activate.Node], parallel int) map[string]map[string]string {
	var nodes []nixeval.Node
	units := map[string][]string{}
	for _, o := range inspected {
		if o.Err == nil && len(o.Value.Failed) > 0 {
			nodes = append(nodes, o.Node)
			units[o.Node.Name] = o.Value.Failed
		}
	}
	all := map[string]map[string]string{}
	for _, o := range fleet.Each(ctx, nodes, parallel, func(ctx context.Context, n nixeval.Node) ([]engine.Fault, error) {
		return engine.Cluster{Members: []engine.Member{{Node: n.Name}}, Run: f.Run}.FindFaults(ctx, n.Name, units[n.Name]...)
	}) {
		reasons := map[string]string{}
		for _, fault := range o.Value {
			if fault.Unit != "" && fault.Log != "" { // Log has no lines of systemd, which are the same for every failure
				reasons[fault.Unit] = fault.Log
			}
		}
		all[o.Node.Name] = reasons
	}
	return all
}

// membersTimeout is how long an engine may take to list its members.
const membersTimeout = 20 * time.Second

// NewUnknownError returns the error for an engine that does not answer, so that the state of its members is unknown. seen is what is
// wrong on the nodes on which the engine depends; it may be empty.
func NewUnknownError(err error, seen string) error {
	err = fmt.Errorf("the state of the members is unknown: %w", err)
	if seen != "" {
		err = fmt.Errorf("%w\n%s", err, seen)
	}
	return failure.WithHint(failure.WithKind(failure.Cluster, err), "nixbench apply starts units of the cluster that are stopped")
}

// addMembers adds to each row the node's status as a member of its cluster. The error joins one error of [NewUnknownError] for each
// engine that does not answer.
func addMembers(ctx context.Context, engines []engine.Engine, rows map[string]*Status) error {
	var errs []error
	for _, e := range engines {
		one, cancel := context.WithTimeout(ctx, membersTimeout)
		members, err := e.Members(one)
		cancel()
		if err != nil {
			seen := ""
			if ctx.Err() == nil {
				seen, _ = engine.LookAt(e)(ctx)
			}
			errs = append(errs, NewUnknownError(err, seen))
		}
		for node, m := range members {
			if row := rows[node]; row != nil {
				m.Ready = m.Ready && !row.Machine.Off() // the cluster notices only after a while that a machine is off
				row.Member = &m
			}
		}
	}
	return errors.Join(errs...)
}
