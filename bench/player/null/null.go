// Package null is a player without a cluster, for tests. Its scheduler runs in this process and takes no time. It places each job
// as soon as the jobs on which this job depends have ended, and has enough nodes for all jobs.
package null

import (
	"context"
	"slices"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
)

type Options struct {
	Launch time.Duration // from the placement of a job to its first instruction
}

func New(o Options) player.Player { return null{o} }

type null struct{ o Options }

func (n null) Limits(context.Context) ([]player.Limit, error) { return nil, nil }

// Clean implements [player.Player]. It has nothing to remove, because jobs exist only while Play runs.
func (n null) Clean(context.Context) error { return nil }

func (n null) Usage(context.Context) (map[string]player.Usage, error) { return nil, nil }

func (n null) Requests(context.Context) ([]player.Request, error) { return nil, nil }

func (n null) Observed() player.Observations { return player.Observations{} }

type placed struct {
	workload.Job
	start, end time.Time
}

// Play implements [player.Player].
func (n null) Play(ctx context.Context, jobs []workload.Job, begin func() time.Time, send func(player.Event)) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	queue := player.NewQueue(jobs, begin(), func(workload.Job) bool { return true })
	var running []placed
	next := time.Now()
	for ended := 0; ended < len(jobs); {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Until(next)):
		}
		now := time.Now()
		due := queue.Due(now)
		for _, j := range due {
			running = append(running, place(j, now, n.o.Launch, send))
		}
		queue.Remove(len(due))
		for _, p := range running {
			if !p.end.After(now) {
				p.finish(send)
				queue.End(p.ID, p.end)
				ended++
			}
		}
		running = slices.DeleteFunc(running, func(p placed) bool { return !p.end.After(now) })
		next = queue.Next(now.Add(time.Hour))
		for _, p := range running {
			if p.end.Before(next) {
				next = p.end
			}
		}
	}
	return nil
}

func place(j workload.Job, now time.Time, launch time.Duration, send func(player.Event)) placed {
	for _, kind := range []string{player.Submit, player.Created, player.Bound, player.Launched} {
		send(player.Event{Time: now, Kind: kind, Job: j.ID})
	}
	start := now.Add(launch)
	return placed{j, start, start.Add(time.Duration(j.Runtime * float64(time.Second)))}
}

func (p placed) finish(send func(player.Event)) {
	for task := range p.Tasks {
		number := task + 1
		if p.Tasks == 1 {
			number = 0
		}
		send(player.Event{Time: p.start, Kind: player.Start, Job: p.ID, Task: number})
		send(player.Event{Time: p.end, Kind: player.Last, Job: p.ID, Task: number})
	}
	send(player.Event{Time: p.end, Kind: player.Finish, Job: p.ID})
}
