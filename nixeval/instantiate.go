package nixeval

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/nixeval/workload"
)

// Closure is the NixOS system or the boot image of a unit (a node, or all nodes of a role). It may not be built yet.
type Closure struct {
	Drv    string `json:"drv"`    // path of the derivation
	Out    string `json:"out"`    // store path of the build result
	System string `json:"system"` // platform, such as x86_64-linux
}

// Instantiate evaluates the systems of units (sets of nodes that share one system). It returns the closures of all units that
// could be evaluated, and an [*EvalError] for the other units. It runs several Nix processes at once, each for a few units, see
// [workload.Work.Plan].
func (e *Evaluator) Instantiate(ctx context.Context, units []string) (map[string]Closure, error) {
	return e.InstantiateEach(ctx, units, func(map[string]Closure) {})
}

// InstantiateEach does the same as Instantiate. Each time that a Nix process ends, it also calls each with the closures of this
// process, while other units are still being evaluated. It makes one call of each at a time.
func (e *Evaluator) InstantiateEach(ctx context.Context, units []string, each func(map[string]Closure)) (map[string]Closure, error) {
	if len(units) == 0 {
		return nil, nil
	}
	e.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Evaluate, Total: len(units)})
	var (
		mu        sync.Mutex
		closures  = map[string]Closure{}
		processes atomic.Int32
	)
	plan := workload.Systems.Plan(len(units), e.Workers, e.ChunkSize)
	failed, err := isolateFailures(ctx, slices.Chunk(units, plan.Chunk), plan.Processes, func(ctx context.Context, chunk []string) error {
		processes.Add(1)
		var part map[string]Closure
		if err := e.eval(ctx, event.Evaluate, "h: h.instantiate "+EncodeJSON(chunk), &part); err != nil {
			return err
		}
		if err := checkClosures(part); err != nil {
			return err
		}
		e.Send.Send(event.Event{Kind: event.UnitEnd, Phase: event.Evaluate, Units: chunk})
		mu.Lock()
		defer mu.Unlock()
		maps.Copy(closures, part)
		if len(closures) < len(units) {
			each(part)
		}
		return nil
	})
	if err == nil && len(failed) > 0 {
		err = &EvalError{Units: failed}
		names := slices.SortedFunc(maps.Keys(failed), CompareNatural)
		e.Send.Send(event.Event{Kind: event.UnitEnd, Phase: event.Evaluate, Units: names, Failed: true})
	}
	e.Send.Send(event.Event{
		Kind: event.PhaseEnd, Phase: event.Evaluate, Failed: err != nil, Done: len(closures), Total: len(units),
		Text: event.Count(len(closures), "unit") + " in " + event.Count(int(processes.Load()), "process"),
	})
	return closures, err
}

// checkClosures returns an error if the paths of closures, which the hive determines, are not store paths.
func checkClosures(closures map[string]Closure) error {
	for _, c := range closures {
		if err := checkStorePaths(c.Drv, c.Out); err != nil {
			return err
		}
	}
	return nil
}

// isolateFailures calls do for every chunk of units, with at most `workers` calls at the same time. If a chunk fails, it calls do for
// each unit of the chunk alone. It returns the errors of the failing units. The last result is an error that no unit has caused,
// such as a missing Nix or a cancelled context.
//
// Units may need more memory than the plan expects, for example if each reads options of all nodes. If the kernel kills a
// process because the memory is full, the units of this process are evaluated again at the end, one after the other.
func isolateFailures(ctx context.Context, work iter.Seq[[]string], workers int, do func(context.Context, []string) error) (map[string]*NixError, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed = map[string]*NixError{}
		killed []string
		slots  = make(chan struct{}, workers)
		start  func(chunk []string)
	)
	// evaluate calls do. It returns the error that units of the chunk have caused, and cancels ctx because of any other error.
	evaluate := func(chunk []string) (ne *NixError) {
		if err := do(ctx, chunk); err != nil && !errors.As(err, &ne) {
			cancel(err)
		}
		return ne
	}
	start = func(chunk []string) {
		wg.Go(func() {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			ne := evaluate(chunk)
			<-slots
			mu.Lock()
			defer mu.Unlock()
			switch {
			case ne == nil:
			case ne.killed:
				killed = append(killed, chunk...)
			case len(chunk) == 1:
				failed[chunk[0]] = ne
			default:
				for unit := range slices.Chunk(chunk, 1) {
					start(unit)
				}
			}
		})
	}
	for chunk := range work {
		start(chunk)
	}
	wg.Wait()
	slices.SortFunc(killed, CompareNatural)
	for unit := range slices.Chunk(killed, 1) {
		if ctx.Err() == nil {
			if ne := evaluate(unit); ne != nil {
				failed[unit[0]] = ne
			}
		}
	}
	return failed, context.Cause(ctx)
}
