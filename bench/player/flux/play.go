package flux

import (
	"context"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
)

// Play implements [player.Player]. program.py submits the jobs on the leader. Play sends all events at the end, when it has read
// the clock of the leader again.
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

// follow reads the lines that program.py writes until all jobs have ended.
func (p *Player) follow(ctx context.Context, t *trial) error {
	offset, active := 0, time.Now() // active is when program.py last wrote a line or was seen running
	return player.Loop{
		Poll: p.poll, Done: func() bool { return len(t.ended) == len(t.jobs) },
		Read: func() func() (func() error, error) {
			from := offset
			return func() (func() error, error) {
				lines, next, err := p.readLines(ctx, from)
				return func() error {
					offset = next
					t.addLines(lines)
					if len(lines) == 0 && time.Since(active) <= p.quiet {
						return nil
					}
					if active = time.Now(); len(lines) > 0 {
						return nil
					}
					return p.checkProgram(ctx)
				}, err
			}
		},
		Last: func(ctx context.Context) {
			if lines, _, err := p.readLines(ctx, offset); err == nil {
				t.addLines(lines)
			}
		},
	}.Run(ctx)
}
