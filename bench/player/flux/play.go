package flux

import (
	"cmp"
	"context"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
)

// Play implements [player.Player]. program.py submits the jobs on the leader.
func (p *Player) Play(ctx context.Context, jobs []workload.Job, begin func() time.Time, send func(player.Event)) error {
	if err := checkJobs(jobs); err != nil {
		return err
	}
	leader := p.Place().Scheduler
	t := newTrial(jobs, leader)
	defer p.program.Stop(ctx)
	return p.Measure(ctx, player.Measurement{
		Jobs: jobs, Stamps: player.FileStamps, JobOf: func(id string, task int) (string, int) { return id, task },
		SetUp: func(ctx context.Context) error { return p.startProgram(ctx, jobs) },
		Follow: func(ctx context.Context, start time.Time) error {
			if err := p.begin(ctx, start.Add(p.ClockBefore(leader).Offset)); err != nil {
				return cmp.Or(context.Cause(ctx), err)
			}
			return p.follow(ctx, t)
		},
		Events: func(map[string]player.Clocks) []player.Event { return t.events }, Capacity: t.submissions.Rate,
	}, begin, send)
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
