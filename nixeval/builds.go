package nixeval

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
)

// Builds builds closures in batches, so that closures are built while other units of the hive are still being evaluated. One Nix
// process builds a batch, and Nix schedules the builds in it. Closures that Add receives during a batch form the next batch. For
// the user, all batches together are one phase.
type Builds struct {
	e        *Evaluator
	units    int // the expected number of units
	builders string
	built    func(closures map[string]Closure, err error)

	mu        sync.Mutex
	early     sync.WaitGroup     // the goroutine that builds what Add receives
	building  bool               // that goroutine runs
	finishing bool               // Finish was called
	all       map[string]Closure // received by Add or Finish
	waiting   map[string]Closure // those in no batch

	// Only one batch is built at a time, so the fields below need no lock.
	progress [2]int      // in all batches that have ended, the number of derivations that are built, and of all derivations
	done     []string    // units whose closures exist
	failed   *BuildError // nil: no build has failed
	err      error       // another error, after which no batch is started
}

// gatherFor is how long the first batch waits for further closures. Units that were evaluated together are added one after the
// other, and one Nix process should build all of them.
const gatherFor = 50 * time.Millisecond

// NewBuilds returns a Builds for a number of units. It builds nothing yet. builders is the path of Nix's machines file (a list of
// remote builders), or empty. After each batch that Add has started, built is called with the closures and the error of the batch.
// built may be nil.
func (e *Evaluator) NewBuilds(units int, builders string, built func(map[string]Closure, error)) *Builds {
	return &Builds{e: e, units: units, builders: builders, built: built, all: map[string]Closure{}, waiting: map[string]Closure{}}
}

// Add returns at once, and builds the closures soon: if a batch is running, after this batch. Add ignores closures that it has
// received before. After Finish, Add does nothing, because Finish builds all closures.
func (b *Builds) Add(ctx context.Context, closures map[string]Closure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.finishing {
		return
	}
	if b.enqueue(closures); len(b.waiting) == 0 || b.building {
		return
	}
	b.building = true
	b.early.Go(func() {
		time.Sleep(gatherFor)
		for batch := b.takeBatch(ctx); batch != nil; batch = b.takeBatch(ctx) {
			if built, err := b.buildBatch(ctx, batch); b.built != nil && ctx.Err() == nil {
				b.built(built, err)
			}
		}
	})
}

// enqueue adds those of the closures to waiting that were not received before. It starts the phase if there are any.
func (b *Builds) enqueue(closures map[string]Closure) {
	started := len(b.all) > 0
	for unit, c := range closures {
		if _, received := b.all[unit]; !received {
			b.all[unit], b.waiting[unit] = c, c
		}
	}
	if !started && len(b.all) > 0 {
		b.e.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Build, Total: max(b.units, len(closures))})
	}
}

// takeBatch makes the next batch of the closures that Add has received since the last batch. It returns nil if there are none.
func (b *Builds) takeBatch(ctx context.Context) map[string]Closure {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.finishing || len(b.waiting) == 0 || b.err != nil || ctx.Err() != nil {
		b.building = false
		return nil
	}
	batch := b.waiting
	b.waiting = map[string]Closure{}
	return batch
}

// Finish waits for the running batch, and builds those of the closures that are in no batch yet. It returns the names of all units
// of the hive whose closures exist, and a [*BuildError] for the other units.
func (b *Builds) Finish(ctx context.Context, closures map[string]Closure) ([]string, error) {
	b.mu.Lock()
	b.finishing = true
	b.enqueue(closures)
	b.mu.Unlock()
	b.early.Wait()
	if len(b.all) == 0 {
		return nil, nil
	}
	maps.DeleteFunc(b.waiting, func(unit string, _ Closure) bool { _, wanted := closures[unit]; return !wanted })
	if len(b.waiting) > 0 && b.err == nil {
		b.buildBatch(ctx, b.waiting)
	}
	slices.SortFunc(b.done, CompareNatural)
	err := b.err
	if err == nil && ctx.Err() != nil && len(b.done) < len(b.all) {
		err = context.Cause(ctx)
	}
	if b.failed != nil {
		slices.SortFunc(b.failed.Units, CompareNatural)
		err = errors.Join(b.failed, err)
	}
	outs := distinctValues(b.done, func(u string) string { return b.all[u].Out })
	b.e.Send.Send(event.Event{
		Kind: event.PhaseEnd, Phase: event.Build, Done: len(b.done), Total: len(b.all), Failed: err != nil, Text: event.Count(len(outs), "closure"),
	})
	return b.done, err
}

// buildBatch builds the closures of one batch, and returns those that exist then. The progress that it sends is the progress of
// all batches together.
func (b *Builds) buildBatch(ctx context.Context, batch map[string]Closure) (map[string]Closure, error) {
	before := b.progress
	units, err := b.e.realise(ctx, batch, b.builders, func(e event.Event) {
		if e.Kind == event.Progress {
			e.Done, e.Total = e.Done+before[0], e.Total+before[1]
			b.progress = [2]int{e.Done, e.Total}
		}
		b.e.Send(e)
	})
	b.done = append(b.done, units...)
	var failed *BuildError
	if !errors.As(err, &failed) {
		b.err = err
	} else if b.failed == nil {
		b.failed = failed
	} else {
		b.failed.Units = append(b.failed.Units, failed.Units...)
		for _, f := range failed.Failures {
			// Leave out an error of an earlier batch: both batches needed the same derivation, or failed for the same reason.
			if !slices.ContainsFunc(b.failed.Failures, func(other *NixError) bool { return other.Drv == f.Drv && (f.Drv != "" || other.Text == f.Text) }) {
				b.failed.Failures = append(b.failed.Failures, f)
			}
		}
	}
	maps.DeleteFunc(batch, func(unit string, _ Closure) bool { return !slices.Contains(units, unit) })
	return batch, err
}
