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

func (p *Player) follow(ctx context.Context, t *trial) error {
	return player.Loop{
		Poll: p.program.Poll, Done: func() bool { return len(t.ended) == len(t.jobs) },
		Read: p.program.Read(ctx, t.addLines), Last: p.program.Last(t.addLines),
	}.Run(ctx)
}
