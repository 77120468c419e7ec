package rollout

import (
	"context"
	"errors"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/nixeval"
)

// EachWave calls [fleet.Each] for one wave after the other. After a wave in which a node failed, it skips all
// later nodes: their error is a [*SkippedError]. After each wave without a failure, it calls between with the
// index of the wave.
func EachWave[T any](ctx context.Context, waves [][]nixeval.Node, parallel int, f func(context.Context, nixeval.Node) (T, error), between func(wave int)) []fleet.Outcome[T] {
	var out []fleet.Outcome[T]
	stop := false
	for i, wave := range waves {
		if stop {
			for _, n := range wave {
				out = append(out, fleet.Outcome[T]{Node: n, Err: &SkippedError{Node: n.Name}})
			}
			continue
		}
		done := fleet.Each(ctx, wave, parallel, f)
		out = append(out, done...)
		if stop = len(fleet.Errors(done)) > 0; !stop {
			between(i)
		}
	}
	return out
}

// SkippedError is the error of a node that was not changed because a node of an earlier wave failed.
type SkippedError struct{ Node string }

func (e *SkippedError) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode].
func (e *SkippedError) OnNode() (node, text string) {
	return e.Node, "skipped: a node of an earlier wave failed"
}

// WasSkipped reports whether the node was skipped because a node of an earlier wave failed.
func WasSkipped(err error) bool {
	var skipped *SkippedError
	return errors.As(err, &skipped)
}
