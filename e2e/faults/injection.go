package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
)

// injection is what has become of the fault of a choice.
type injection struct {
	at  time.Duration // from the start of the run to the fault
	err error         // the reason if the fault was not injected
}

// errMissed is the error if a fault was not injected because the run had ended before.
var errMissed = errors.New("the run ended before the fault")

// operate runs the operation of c, injects the fault of c, and heals the fault. A unit test sets skipHeal, so that the fault is not healed,
// and checks that the effects of the fault are reported.
func (s *sandbox) operate(ctx context.Context, c choice, skipHeal bool) (outcome, injection, error) {
	if c.fault.spares > 0 {
		time.Sleep(time.Until(s.up.Add(c.fault.spares)))
	}
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	run, err := s.start(ctx, func(o streamEvent) {
		if c.begins(o) {
			begin()
		}
	}, c.operation.args...)
	if err != nil {
		return outcome{}, injection{err: errMissed}, err
	}
	during, cancel := context.WithCancel(ctx)
	go func() {
		<-run.over
		cancel()
	}()
	in, healed := s.inject(during, c, run, begun)
	<-run.over
	if in.err != nil || healed || c.fault.heal == nil || skipHeal {
		return run.end, in, ctx.Err()
	}
	limited, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer stop()
	return run.end, in, c.fault.heal(limited, s, run, c.victim)
}

// inject waits until the chosen phase has begun, and for the delay of the choice, and then injects the fault. If the fault lasts for a
// limited time, it is healed after this time, unless the run, and ctx with it, ends before.
func (s *sandbox) inject(ctx context.Context, c choice, run *process, begun chan struct{}) (in injection, healed bool) {
	select {
	case <-begun:
	case <-ctx.Done():
	}
	if !engine.Sleep(ctx, c.delay) {
		return injection{err: errMissed}, false
	}
	in.err = c.fault.inject(ctx, s, run, c.victim)
	in.at = time.Since(run.began)
	if in.err != nil && ctx.Err() != nil {
		in.err = errMissed
	}
	if in.err != nil || c.fault.lasts == 0 || !engine.Sleep(ctx, c.fault.lasts) {
		return in, false
	}
	// The end of the run cancels ctx, but the healing must be completed. So it gets a context without cancellation.
	in.err = c.fault.heal(context.WithoutCancel(ctx), s, run, c.victim)
	return in, true
}
