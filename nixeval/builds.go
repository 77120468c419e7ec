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

// Builds builds closures in batches, so that closures are built while other units of the hive are still being evaluated. Nix
// builds a batch with one process. Closures that Add receives during a batch form the next batch. Finish builds the rest in a last
// batch, and waits for the running batch only for overlapAfter. So at most two Nix processes build at once, each with Nix's limit
// of jobs. For the user, all batches together are one phase.
type Builds struct {
	e        *Evaluator
	units    int // the expected number of units
	builders string
	// built is called with the closures and the error of each batch that ends before the other batches, or before the call of
	// Finish. It may be nil.
	built func(closures map[string]Closure, err error)

	mu        sync.Mutex
	batches   sync.WaitGroup
	started   bool               // the phase has started
	early     chan struct{}      // closed when the goroutine that builds the closures of Add ends; nil: no such goroutine runs
	finishing bool               // Finish was called
	running   int                // number of running batches
	waiting   map[string]Closure // received by Add, and in no batch
	taken     map[string]Closure // in a batch
	progress  [][2]int           // for each batch, how many of its derivations are built, and their number
	done      []string           // units of the hive whose closures exist
	failed    *BuildError        // nil: no build has failed
	errs      []error            // other errors
}

// overlapAfter is how long the last batch waits for the running one. Nodes of one hive usually need the same derivations. If two
// Nix processes need the same derivation, the second waits for the lock of the first, and looks at the lock only every five
// seconds (Nix's build-poll-interval). So short builds are faster one after the other.
const overlapAfter = 2 * time.Second

// gatherFor is how long the first batch waits for further closures. Units that were evaluated together are added one after the
// other, and one Nix process should build all of them.
const gatherFor = 50 * time.Millisecond

// NewBuilds returns a Builds for a number of units. It builds nothing yet. For built, see the field Builds.built. builders is the
// path of Nix's machines file (a list of remote builders), or empty.
func (e *Evaluator) NewBuilds(units int, builders string, built func(map[string]Closure, error)) *Builds {
	return &Builds{e: e, units: units, builders: builders, built: built, waiting: map[string]Closure{}, taken: map[string]Closure{}}
}

// Add returns at once, and builds the closures soon: if a batch is running, after this batch. Add ignores closures that it has
// received before. After Finish, Add does nothing, because Finish builds all closures.
func (b *Builds) Add(ctx context.Context, closures map[string]Closure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.finishing {
		return
	}
	for unit, c := range closures {
		if _, taken := b.taken[unit]; !taken {
			b.waiting[unit] = c
		}
	}
	if len(b.waiting) == 0 {
		return
	}
	b.startPhase(b.units)
	if b.early != nil {
		return
	}
	b.early = make(chan struct{})
	ended := b.early
	b.batches.Go(func() {
		defer close(ended)
		time.Sleep(gatherFor)
		for batch := b.takeWaiting(ctx); batch != nil; batch = b.takeWaiting(ctx) {
			b.buildBatch(ctx, batch)
		}
	})
}

// takeWaiting makes the next batch of the closures that Add has received since the last batch. It returns nil if there are none.
func (b *Builds) takeWaiting(ctx context.Context) map[string]Closure {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.finishing || len(b.waiting) == 0 || ctx.Err() != nil {
		b.early = nil
		return nil
	}
	batch := b.waiting
	b.waiting = map[string]Closure{}
	maps.Copy(b.taken, batch)
	b.running++
	return batch
}

// Finish builds those of the closures that are in no batch yet, and waits for all batches. It returns the names of all units of
// the hive whose closures exist, and a [*BuildError] for the other units.
func (b *Builds) Finish(ctx context.Context, closures map[string]Closure) ([]string, error) {
	b.mu.Lock()
	b.finishing = true
	batch := map[string]Closure{}
	for unit, c := range closures {
		if _, taken := b.taken[unit]; !taken {
			batch[unit] = c
		}
	}
	for unit := range batch {
		delete(b.waiting, unit)
	}
	if len(batch) > 0 {
		maps.Copy(b.taken, batch)
		b.startPhase(len(closures))
		b.running++
	}
	early := b.early
	b.mu.Unlock()
	if len(batch) > 0 {
		if early != nil {
			select {
			case <-early:
			case <-time.After(overlapAfter):
			case <-ctx.Done():
			}
		}
		b.buildBatch(ctx, batch)
	}
	b.batches.Wait()
	return b.endPhase(ctx)
}

func (b *Builds) startPhase(units int) {
	if !b.started {
		b.started = true
		b.e.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Build, Total: units})
	}
}

// endPhase ends the phase of all batches for the user. It returns the names of the built units, and the errors of all batches.
func (b *Builds) endPhase(ctx context.Context) ([]string, error) {
	if !b.started {
		return nil, nil
	}
	slices.SortFunc(b.done, CompareNatural)
	errs := b.errs
	if b.failed != nil {
		slices.SortFunc(b.failed.Units, CompareNatural)
		errs = append(errs, b.failed)
	}
	units := len(b.taken) + len(b.waiting)
	err := errors.Join(errs...)
	switch {
	case len(errs) == 1:
		err = errs[0]
	case ctx.Err() != nil && len(b.done) < units:
		err = context.Cause(ctx)
	}
	outs := distinctValues(b.done, func(u string) string { return b.taken[u].Out })
	b.e.Send.Send(event.Event{
		Kind: event.PhaseEnd, Phase: event.Build, Done: len(b.done), Total: units, Failed: err != nil, Text: countNoun(len(outs), "closure"),
	})
	return b.done, err
}

// buildBatch builds the closures of one batch.
func (b *Builds) buildBatch(ctx context.Context, batch map[string]Closure) {
	units, err := b.e.realise(ctx, batch, b.builders, b.newSink())
	built := map[string]Closure{}
	for _, u := range units {
		built[u] = batch[u]
	}
	b.mu.Lock()
	b.running--
	b.done = append(b.done, units...)
	b.addError(err)
	isLast := b.finishing && b.running == 0
	b.mu.Unlock()
	if !isLast && b.built != nil && ctx.Err() == nil {
		b.built(built, err)
	}
}

// addError adds the error of a batch to those of the other batches. It joins all [*BuildError] to one.
func (b *Builds) addError(err error) {
	var failed *BuildError
	switch {
	case err == nil:
	case !errors.As(err, &failed):
		// Two batches may fail for the same reason, for example because no Nix daemon is running.
		if !slices.ContainsFunc(b.errs, func(other error) bool { return other.Error() == err.Error() }) {
			b.errs = append(b.errs, err)
		}
	default:
		if b.failed == nil {
			b.failed = &BuildError{}
		}
		b.failed.Units = append(b.failed.Units, failed.Units...)
		for _, f := range failed.Failures {
			// Leave out an error that another batch has reported already: both batches needed the same derivation, or failed for
			// the same reason.
			if !slices.ContainsFunc(b.failed.Failures, func(other *NixError) bool { return other.Drv == f.Drv && (f.Drv != "" || other.Text == f.Text) }) {
				b.failed.Failures = append(b.failed.Failures, f)
			}
		}
	}
}

// newSink returns the sink for the events of one batch. The progress that the sink sends is the progress of all batches together.
func (b *Builds) newSink() event.Sink {
	b.mu.Lock()
	defer b.mu.Unlock()
	batch := len(b.progress)
	b.progress = append(b.progress, [2]int{})
	return func(e event.Event) {
		if e.Kind == event.Progress {
			b.mu.Lock()
			b.progress[batch] = [2]int{e.Done, e.Total}
			e.Done, e.Total = 0, 0
			for _, p := range b.progress {
				e.Done, e.Total = e.Done+p[0], e.Total+p[1]
			}
			b.mu.Unlock()
		}
		b.e.Send(e)
	}
}
