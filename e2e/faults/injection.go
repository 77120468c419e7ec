package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"
)

// injection brings a fault to a run, and ends it.
type injection struct {
	choice
	s *site

	mu     sync.Mutex
	open   open
	begun  bool
	done   chan struct{} // closed when the fault has been injected, or cannot be any more
	at     time.Duration // when it was, from the start of the run
	during string        // the phases that were open then
	err    error         // why it was not
	healed bool
}

// errMissed: the run was over before the moment came.
var errMissed = errors.New("the run was over before")

// operate runs the operation with its fault, and heals that. skipHeal leaves the fault as
// it is, so that the suite's own test can see what follows from that.
func (s *site) operate(ctx context.Context, c choice, skipHeal bool) (outcome, *injection, error) {
	in := &injection{choice: c, s: s, done: make(chan struct{}), err: errMissed}
	if c.fault.spares > 0 {
		time.Sleep(time.Until(s.up.Add(c.fault.spares)))
	}
	started := make(chan *process, 1)
	run, err := s.start(ctx, func(o occurrence) { in.watch(ctx, o, started) }, c.operation.args...)
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

// watch follows the run's events, and lets the fault happen when its time has come.
func (in *injection) watch(ctx context.Context, o occurrence, started chan *process) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.open = in.open.follow(o)
	if in.begun || !in.begins(o) {
		return
	}
	in.begun = true
	go func() {
		defer close(in.done)
		in.happen(ctx, <-started)
	}()
}

// happen waits for the moment, and injects the fault. One that does not last for the whole run
// is healed later, too, unless the run ends before.
func (in *injection) happen(ctx context.Context, run *process) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-run.over:
			cancel()
		case <-ctx.Done():
		}
	}()
	if !pause(ctx, in.delay) {
		return
	}
	err := in.fault.inject(ctx, in.s, run, in.victim)
	in.mu.Lock()
	in.at, in.during = time.Since(run.began), strings.Join(in.open, ", ")
	in.mu.Unlock()
	if err != nil && ctx.Err() != nil {
		return
	}
	in.err = err
	if err != nil || in.fault.lasts == 0 || !pause(ctx, in.fault.lasts) {
		return
	}
	// The run goes on, and healing must not be cut off when it ends.
	if err := in.fault.heal(context.WithoutCancel(ctx), in.s, in.victim); err != nil {
		in.err = err
	}
	in.healed = true
}

// pause waits, and tells whether nothing ended it before.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// allowed tells whether the fault may lead to the exit code.
func (f fault) allowed(code int) bool {
	if f.exits == nil {
		return code == 0 || code == -1
	}
	return slices.Contains(f.exits, code)
}
