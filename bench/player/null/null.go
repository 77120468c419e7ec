// Package null is a player without a cluster, for tests. Its scheduler runs in this process and takes no time. It places each job
// as soon as the jobs on which this job depends have ended, and has enough nodes for all jobs.
package null

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
)

// Options are the properties of the scheduler.
type Options struct {
	Rate   float64       // maximum number of jobs that are placed per second; 0: no maximum
	Launch time.Duration // from the placement of a job to its first instruction
}

// New returns a player whose scheduler has these properties.
func New(o Options) player.Player { return null{o} }

type null struct{ o Options }

// Limits implements [player.Player].
func (n null) Limits(context.Context) ([]player.Limit, error) {
	if n.o.Rate == 0 {
		return nil, nil
	}
	value := strconv.FormatFloat(n.o.Rate, 'g', -1, 64)
	return []player.Limit{{Name: "null: rate", Value: value, Rate: n.o.Rate, Kind: player.Bound}}, nil
}

// Clean implements [player.Player]. It has nothing to remove, because jobs exist only while Play runs.
func (n null) Clean(context.Context) error { return nil }

// Usage implements [player.Player].
func (n null) Usage(context.Context) (map[string]player.Usage, error) { return nil, nil }

// Requests implements [player.Player].
func (n null) Requests(context.Context) ([]player.Request, error) { return nil, nil }

// Observed implements [player.Player].
func (n null) Observed() player.Observations { return player.Observations{} }

// placed is a job that runs.
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
	var slot time.Time // the earliest time at which the next job may be placed, by Options.Rate
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
			at := now
			if n.o.Rate > 0 {
				if slot.After(now) {
					at = slot
				}
				slot = at.Add(time.Duration(float64(time.Second) / n.o.Rate))
			}
			running = append(running, place(j, now, at, n.o.Launch, send))
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

// place sends the events of a job that is submitted now, and placed at another time.
func place(j workload.Job, now, at time.Time, launch time.Duration, send func(player.Event)) placed {
	for _, e := range []player.Event{{Time: now, Kind: player.Submit}, {Time: now, Kind: player.Created}, {Time: at, Kind: player.Bound}, {Time: at, Kind: player.Launched}} {
		e.Job = j.ID
		send(e)
	}
	start := at.Add(launch)
	return placed{j, start, start.Add(time.Duration(j.Runtime * float64(time.Second)))}
}

// finish sends the events of a job that has ended, and of its tasks.
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
