package nixeval

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nixbench/nixbench/deploy/event"
)

// Closure is a unit's system: what to build, and what that will be called.
type Closure struct {
	Drv    string `json:"drv"`
	Out    string `json:"out"`
	System string `json:"system"`
}

// Instantiate evaluates the systems of units, each once, a few in each Nix process
// and as many processes at once as the machine bears. One unit's error does not
// hide the others: it gives the closures of all that could be evaluated, and an
// [*EvalError] for those that could not.
func (e *Evaluator) Instantiate(ctx context.Context, units []string) (map[string]Closure, error) {
	if len(units) == 0 {
		return nil, nil
	}
	e.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Evaluate, Total: len(units)})
	var (
		mu        sync.Mutex
		closures  = map[string]Closure{}
		processes atomic.Int32
	)
	failed, err := e.isolate(ctx, chunks(units, e.limits.workers), func(ctx context.Context, chunk []string) error {
		processes.Add(1)
		names, err := nixJSON(chunk)
		if err != nil {
			return err
		}
		var part map[string]Closure
		if err := e.eval(ctx, event.Evaluate, "h: h.instantiate "+names, &part); err != nil {
			return err
		}
		e.Send.Send(event.Event{Kind: event.UnitEnd, Phase: event.Evaluate, Units: chunk})
		mu.Lock()
		defer mu.Unlock()
		maps.Copy(closures, part)
		return nil
	})
	if err == nil && len(failed) > 0 {
		err = &EvalError{Units: failed}
		names := slices.SortedFunc(maps.Keys(failed), compareNatural)
		e.Send.Send(event.Event{Kind: event.UnitEnd, Phase: event.Evaluate, Units: names, Failed: true})
	}
	e.Send.Send(event.Event{
		Kind: event.PhaseEnd, Phase: event.Evaluate, Failed: err != nil, Done: len(closures), Total: len(units),
		Text: fmt.Sprintf("%s in %s", count(len(closures), "unit"), countOf(int(processes.Load()), "process", "processes")),
	})
	return closures, err
}

// splitInto is how many parts a chunk that fails is cut into. For the few units of
// a chunk that means each alone, which costs no more than halving and is done sooner.
const splitInto = 8

// isolate runs work on every chunk, workers at a time. A chunk that fails is split
// until the culprits stand alone; they are returned, each with its reason. The
// error is for what is nobody's fault: no Nix, a cancelled context.
func (e *Evaluator) isolate(ctx context.Context, work [][]string, do func(context.Context, []string) error) (map[string]*NixError, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed map[string]*NixError
		slots  = make(chan struct{}, e.limits.workers)
		start  func(chunk []string)
	)
	start = func(chunk []string) {
		wg.Go(func() {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			err := do(ctx, chunk)
			<-slots
			var ne *NixError
			switch {
			case err == nil:
			case !errors.As(err, &ne):
				cancel(err)
			case len(chunk) == 1:
				mu.Lock()
				defer mu.Unlock()
				if failed == nil {
					failed = map[string]*NixError{}
				}
				failed[chunk[0]] = ne
			default:
				for part := range slices.Chunk(chunk, max(1, len(chunk)/splitInto)) {
					start(part)
				}
			}
		})
	}
	for _, chunk := range work {
		if len(chunk) > 0 {
			start(chunk)
		}
	}
	wg.Wait()
	return failed, context.Cause(ctx)
}

func countOf(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
