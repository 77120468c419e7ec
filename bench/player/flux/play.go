package flux

import (
	"context"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/deploy/engine"
)

// maxFailures is the number of reads that may fail one after the other.
const maxFailures = 5

// Play implements [player.Player]. The program on the leader submits the jobs. The events are sent at the end, when the clock of the leader
// has been read again.
func (p *Player) Play(ctx context.Context, jobs []workload.Job, begin func() time.Time, send func(player.Event)) error {
	if err := checkJobs(jobs); err != nil {
		return err
	}
	leader := p.Place().Scheduler
	clock, err := p.ReadClock(ctx, leader)
	if err == nil {
		defer p.program.Stop(ctx, "")
		err = p.startProgram(ctx, jobs)
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	t := newTrial(jobs)
	if err = p.begin(ctx, begin().Add(clock.Offset)); err == nil {
		err = p.follow(ctx, t)
	} else if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	clocks := p.ReadClockAgain(ctx, leader, clock)
	for _, e := range t.events {
		e.Time = clocks.Local(e.Time)
		send(e)
	}
	return err
}

// follow reads what the program writes until all jobs have ended.
func (p *Player) follow(ctx context.Context, t *trial) error {
	offset, failures := 0, 0
	active := time.Now() // when the program has written a line, or was seen
	for len(t.ended) < len(t.jobs) {
		if !engine.Sleep(ctx, p.poll) {
			return p.stop(ctx, t, offset)
		}
		lines, next, err := p.readLines(ctx, offset)
		if ctx.Err() != nil {
			return p.stop(ctx, t, offset)
		}
		if err != nil {
			if failures++; failures == maxFailures {
				return err
			}
			continue
		}
		failures, offset = 0, next
		t.addLines(lines)
		switch {
		case len(lines) > 0:
			active = time.Now()
		case time.Since(active) > p.quiet:
			if err := p.checkProgram(ctx); err != nil {
				return err
			}
			active = time.Now()
		}
	}
	return nil
}

// stop adds the events until the end of ctx and returns its cause.
func (p *Player) stop(ctx context.Context, t *trial, offset int) error {
	cause := context.Cause(ctx)
	ctx, cancel := player.LastRead(ctx)
	defer cancel()
	if lines, _, err := p.readLines(ctx, offset); err == nil {
		t.addLines(lines)
	}
	return cause
}
