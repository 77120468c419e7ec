package main

import (
	"context"
	"errors"
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
	time.Sleep(time.Until(s.up.Add(c.fault.spares)))
	begun, begin := context.WithCancel(ctx)
	defer begin()
	run, err := s.start(ctx, func(o streamEvent) {
		if c.begins(o) {
			begin()
		}
	}, c.operation.args...)
	if err != nil {
		return outcome{}, injection{err: errMissed}, err
	}
	in, heal := s.inject(run.running, c, run, begun)
	o := run.wait()
	if heal == nil || skipHeal {
		return o, in, ctx.Err()
	}
	limited, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer stop()
	return o, in, heal(limited)
}

// inject waits until begun ends, because the chosen phase has begun, and for the delay of the choice, and then injects the fault. If the fault
// lasts for a limited time, it is healed after this time, unless the run, and ctx with it, ends before. Otherwise the result heal is not nil.
func (s *sandbox) inject(ctx context.Context, c choice, run *process, begun context.Context) (in injection, heal healer) {
	select {
	case <-begun.Done():
	case <-ctx.Done():
	}
	if !engine.Sleep(ctx, c.delay) {
		return injection{err: errMissed}, nil
	}
	heal, in.err = c.fault.inject(ctx, s, run, c.victim)
	in.at = time.Since(run.began)
	switch {
	case in.err != nil && ctx.Err() != nil:
		return injection{in.at, errMissed}, nil
	case in.err != nil:
		return in, nil
	case c.fault.lasts > 0 && engine.Sleep(ctx, c.fault.lasts):
		// The end of the run cancels ctx, but the healing must be completed. So it gets a context without cancellation.
		in.err, heal = heal(context.WithoutCancel(ctx)), nil
	}
	return in, heal
}
