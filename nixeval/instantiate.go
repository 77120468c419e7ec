package nixeval

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

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
// [workload.Work.Plan]. Each time that a process ends and others still run, it calls each, if this is not nil, with the closures of
// the process. It makes one call of each at a time.
func (e *Evaluator) Instantiate(ctx context.Context, units []string, each func(map[string]Closure)) (map[string]Closure, error) {
	if len(units) == 0 {
		return nil, nil
	}
	if e.Evaluated != nil {
		all := maps.Clone(e.Evaluated.Systems)
		maps.DeleteFunc(all, func(unit string, _ Closure) bool { return !slices.Contains(units, unit) })
		return all, nil
	}
	e.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Evaluate, Total: len(units)})
	var (
		mu        sync.Mutex
		closures  = map[string]Closure{}
		processes atomic.Int32
	)
	cache := openCache(ctx, e, "instantiate")
	known := cache.closures()
	rest := slices.DeleteFunc(slices.Clone(units), func(unit string) bool {
		c, isKnown := known[unit]
		if isKnown {
			closures[unit] = c
		}
		return isKnown
	})
	if each != nil && len(closures) > 0 && len(rest) > 0 {
		each(maps.Clone(closures))
	}
	plan := workload.Systems.Plan(len(rest), e.Workers, e.ChunkSize)
	evaluator := *e
	evaluator.heap = workload.Systems.Heap(plan)
	failed, err := isolateFailures(ctx, rest, plan, func(ctx context.Context, chunk []string) error {
		processes.Add(1)
		var part map[string]Closure
		if err := evaluator.eval(ctx, event.Evaluate, "h: h.instantiate "+EncodeJSON(chunk), &part); err != nil {
			return err
		}
		if err := checkClosures(part); err != nil {
			return err
		}
		e.Send.Send(event.Event{Kind: event.UnitEnd, Phase: event.Evaluate, Units: chunk})
		mu.Lock()
		defer mu.Unlock()
		maps.Copy(closures, part)
		if each != nil && len(closures) < len(units) {
			each(part)
		}
		return nil
	})
	if err == nil && len(failed) > 0 {
		err = &EvalError{Units: failed}
		names := SortedNames(failed)
		e.Send.Send(event.Event{Kind: event.UnitEnd, Phase: event.Evaluate, Units: names, Failed: true})
	}
	text := event.Count(len(closures), "unit") + " in " + event.Count(int(processes.Load()), "process")
	if len(rest) == 0 {
		text = event.Count(len(closures), "unit") + ", all as in an earlier run"
	} else if err == nil {
		maps.Copy(known, closures)
		cache.store(ctx, known)
	}
	e.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Evaluate, Failed: err != nil, Done: len(closures), Total: len(units), Text: text})
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

// isolateFailures calls do for the units in chunks, as the plan says. If a chunk fails, it then calls do for each unit of the chunk
// alone. It returns the errors of the failing units. The last result is an error that no unit has caused, such as a missing Nix or
// a cancelled context.
//
// If nothing could be evaluated, and all chunks and the first two single units have the same error, such as a missing input of a
// flake, it takes this error as that of all units that are left.
//
// Units may need more memory than the plan expects, for example if each reads options of all nodes. If the kernel has killed a
// process because the memory was full, the single units are evaluated one after the other.
func isolateFailures(ctx context.Context, units []string, plan workload.Plan, do func(context.Context, []string) error) (map[string]*NixError, error) {
	var again []string // the units of failed chunks
	var first *NixError
	isShared := true // no evaluation has succeeded, and all had the first error
	failed := map[string]*NixError{}
	handle := func(chunk []string, ne *NixError) {
		first = cmp.Or(first, ne)
		isShared = isShared && ne != nil && ne.isSame(first)
		if ne != nil && len(chunk) == 1 {
			failed[chunk[0]] = ne
		}
	}
	err := evaluateChunks(ctx, units, plan, do, func(chunk []string, ne *NixError) {
		switch {
		case ne != nil && ne.killed:
			again, plan.Processes = append(again, chunk...), 1
			return
		case ne != nil && len(chunk) > 1:
			again = append(again, chunk...)
		}
		handle(chunk, ne)
	})
	if err != nil || len(again) == 0 {
		return failed, err
	}
	slices.SortFunc(again, CompareNatural)
	probes := min(2, len(again))
	// The second is the last unit: the first units have similar names, and often a module that the others do not have.
	again[probes-1], again[len(again)-1] = again[len(again)-1], again[probes-1]
	plan.Chunk = 1
	if err := evaluateChunks(ctx, again[:probes], plan, do, handle); err != nil {
		return failed, err
	}
	if !isShared {
		return failed, evaluateChunks(ctx, again[probes:], plan, do, handle)
	}
	for _, unit := range again {
		failed[unit] = first
	}
	return failed, nil
}

// evaluateChunks calls do for the units in chunks, as the plan says. After each call, it calls handle with the error that units of
// the chunk have caused, or nil, one call at a time. It returns another error at once.
func evaluateChunks(ctx context.Context, units []string, plan workload.Plan, do func(context.Context, []string) error, handle func([]string, *NixError)) error {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(plan.Processes)
	for _, chunk := range plan.Split(units) {
		g.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			var ne *NixError
			if err := do(ctx, chunk); err != nil && !errors.As(err, &ne) {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			handle(chunk, ne)
			return nil
		})
	}
	return g.Wait()
}
