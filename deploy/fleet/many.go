package fleet

import (
	"context"
	"errors"
	"sync"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
)

// Outcome is the result of [Each] for one node.
type Outcome[T any] struct {
	Node  nixeval.Node
	Value T
	Err   error
}

// Each calls f for every node, for at most `parallel` nodes at the same time (0: all). If f fails for one node, this neither
// cancels nor delays the calls for other nodes.
func Each[T any](ctx context.Context, nodes []nixeval.Node, parallel int, f func(context.Context, nixeval.Node) (T, error)) []Outcome[T] {
	return EachReady(ctx, nodes, nil, parallel, f)
}

// EachReady is like [Each], but calls f for a node only after the node's channel in ready is closed. A node
// that still waits for its channel does not count towards parallel.
//
// If f panics, the panic becomes the error of this node. Otherwise the process would end while it changes other nodes.
func EachReady[T any](ctx context.Context, nodes []nixeval.Node, ready map[string]<-chan struct{}, parallel int, f func(context.Context, nixeval.Node) (T, error)) []Outcome[T] {
	out := make([]Outcome[T], len(nodes))
	if parallel <= 0 {
		parallel = max(1, len(nodes))
	}
	slots := make(chan struct{}, parallel)
	var all sync.WaitGroup
	start := all.Go
	if len(nodes) == 1 { // in the goroutine of the caller, which waits for this node anyway: another one needs tens of KB for its stack
		start = func(f func()) { f() }
	}
	for i, n := range nodes {
		turn := ready[n.Name]
		if turn == nil {
			slots <- struct{}{} // nodes without a channel start in order
		}
		start(func() {
			if turn != nil {
				select {
				case <-turn:
				case <-ctx.Done():
				}
				slots <- struct{}{}
			}
			defer func() { <-slots }()
			o := Outcome[T]{Node: n, Err: context.Cause(ctx)}
			if o.Err == nil {
				if err := failure.Recover(func() error {
					o.Value, o.Err = f(ctx, n)
					return nil
				}); err != nil {
					o.Err = failure.On(n.Name, err)
				}
			}
			out[i] = o
		})
	}
	all.Wait()
	return out
}

func Errors[T any](outcomes []Outcome[T]) []error {
	var errs []error
	for _, o := range outcomes {
		if o.Err != nil {
			errs = append(errs, o.Err)
		}
	}
	return errs
}

// ForAll calls f for all names at the same time, and joins the errors. A panic of f becomes an error.
func ForAll(names []string, f func(name string) error) error {
	errs := make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() { errs[i] = failure.Recover(func() error { return f(name) }) })
	}
	all.Wait()
	return errors.Join(errs...)
}
