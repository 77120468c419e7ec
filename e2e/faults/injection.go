package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
)

// injection injects the fault of a choice into a run of nixbench, and heals the fault.
type injection struct {
	choice
	s *sandbox

	mu     sync.Mutex
	begun  bool
	done   chan struct{} // closed when the fault has been injected, or can no longer be injected
	at     time.Duration // from the start of the run to the fault
	err    error         // the reason if the fault was not injected
	healed bool
}

// errMissed is the error if a fault was not injected because the run had ended before.
var errMissed = errors.New("the run ended before the fault")

// operate runs the operation of c, injects the fault of c, and heals the fault. A unit test sets skipHeal, so that the fault is not healed,
// and checks that the effects of the fault are reported.
func (s *sandbox) operate(ctx context.Context, c choice, skipHeal bool) (outcome, *injection, error) {
	in := &injection{choice: c, s: s, done: make(chan struct{}), err: errMissed}
	if c.fault.spares > 0 {
		time.Sleep(time.Until(s.up.Add(c.fault.spares)))
	}
	started := make(chan *process, 1)
	run, err := s.start(ctx, func(o streamEvent) { in.watch(ctx, o, started) }, c.operation.args...)
	if err != nil {
		return outcome{}, in, err
	}
	started <- run
	<-run.over
	in.mu.Lock()
	begun := in.begun
	in.mu.Unlock()
	if begun {
		<-in.done
	}
	if in.err != nil || in.healed || c.fault.heal == nil || skipHeal {
		return run.end, in, ctx.Err()
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return run.end, in, c.fault.heal(limited, s, c.victim)
}

// watch receives an event of the run, and starts the injection when the chosen phase begins. started yields the run's process.
func (in *injection) watch(ctx context.Context, o streamEvent, started chan *process) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.begun || !in.begins(o) {
		return
	}
	in.begun = true
	go func() {
		defer close(in.done)
		in.injectAfterDelay(ctx, <-started)
	}()
}

// injectAfterDelay waits for the delay of the choice, and then injects the fault. If the fault lasts for a limited time, it is
// healed after this time, or when the run has ended.
func (in *injection) injectAfterDelay(ctx context.Context, run *process) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-run.over:
			cancel()
		case <-ctx.Done():
		}
	}()
	if !engine.Sleep(ctx, in.delay) {
		return
	}
	err := in.fault.inject(ctx, in.s, run, in.victim)
	in.mu.Lock()
	in.at = time.Since(run.began)
	in.mu.Unlock()
	if err != nil && ctx.Err() != nil {
		return
	}
	in.err = err
	if err != nil || in.fault.lasts == 0 || !engine.Sleep(ctx, in.fault.lasts) {
		return
	}
	// The end of the run cancels ctx, but the healing must be completed. So it gets a context without cancellation.
	if err := in.fault.heal(context.WithoutCancel(ctx), in.s, in.victim); err != nil {
		in.err = err
	}
	in.healed = true
}

// allowed reports whether the fault may cause this exit code of nixbench.
func (f fault) allowed(code int) bool {
	if f.exits == nil {
		return code == 0 || code == -1
	}
	return slices.Contains(f.exits, code)
}
