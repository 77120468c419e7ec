package deploy

import (
	"context"
	"errors"
	"fmt"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval"
)

// InspectNodes asks every node what it runs, by one login and one command per node. It changes
// nothing. A node that cannot be reached does not delay the others.
func InspectNodes(ctx context.Context, f *Fleet, nodes []nixeval.Node, parallel int, send event.Sink) []Outcome[activate.Node] {
	a := &activate.Activator{Send: f.options.Send}
	send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Connect, Total: len(nodes)})
	out := Each(ctx, nodes, parallel, func(ctx context.Context, n nixeval.Node) (activate.Node, error) {
		h, err := f.Host(ctx, n)
		if err != nil {
			return activate.Node{}, err
		}
		node, err := a.Inspect(ctx, n.Name, h)
		return node, inspectError(n.Name, err)
	})
	failed := 0
	for _, o := range out {
		if o.Err != nil {
			failed++
		}
	}
	text := Count(len(nodes), "node")
	if failed > 0 {
		text = fmt.Sprintf("%d of %s cannot be inspected", failed, text)
	}
	send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Connect, Total: len(nodes), Failed: failed > 0, Text: text})
	return out
}

// inspectError marks a lost connection or a timeout as an error of the connect phase, because nothing
// has been changed on the node. It returns other errors unchanged.
func inspectError(node string, err error) error {
	var lost *remote.LostError
	var timeout *remote.TimeoutError
	if errors.As(err, &lost) || errors.As(err, &timeout) {
		return &NodeError{Node: node, Step: event.Connect, Err: err}
	}
	return err
}

// Errors returns the errors of all nodes that failed.
func Errors[T any](outcomes []Outcome[T]) []error {
	var errs []error
	for _, o := range outcomes {
		if o.Err != nil {
			errs = append(errs, o.Err)
		}
	}
	return errs
}

// eachWave calls Each for one wave after the other. After a wave in which a node failed, it skips
// all later nodes: their error is a *SkippedError. After each wave that succeeded, it calls between
// with the number of the wave.
func eachWave[T any](ctx context.Context, waves [][]nixeval.Node, parallel int, f func(context.Context, nixeval.Node) (T, error), between func(wave int)) []Outcome[T] {
	var out []Outcome[T]
	stop := false
	for i, wave := range waves {
		if stop {
			for _, n := range wave {
				out = append(out, Outcome[T]{Node: n, Err: &SkippedError{Node: n.Name}})
			}
			continue
		}
		done := Each(ctx, wave, parallel, f)
		out = append(out, done...)
		if stop = len(Errors(done)) > 0; !stop {
			between(i)
		}
	}
	return out
}

// SkippedError is a node that was not changed because a node of an earlier wave failed.
type SkippedError struct{ Node string }

func (e *SkippedError) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode].
func (e *SkippedError) OnNode() (node, text string) {
	return e.Node, "skipped: a node of an earlier wave failed"
}

// Count formats a number of things: `1 node` or `3 nodes`.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
