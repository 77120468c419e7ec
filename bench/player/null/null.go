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

// New returns a player. launch is the time from the placement of a job to its first instruction.
func New(launch time.Duration) player.Player { return null{launch} }

type null struct{ launch time.Duration }

func (n null) Limits(context.Context) ([]player.Limit, error) { return nil, nil }

// Clean implements [player.Player]. It has nothing to remove, because jobs exist only while Play runs.
func (n null) Clean(context.Context) error { return nil }

func (n null) Usage(context.Context) (map[string]player.Usage, error) { return nil, nil }

func (n null) Requests(context.Context) ([]player.Request, error) { return nil, nil }

func (n null) Observed() player.Observations { return player.Observations{} }

// Play implements [player.Player]. It determines all events at the beginning, and sends each at its time.
func (n null) Play(ctx context.Context, jobs []workload.Job, begin func() time.Time, send func(player.Event)) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	start := begin()
	never := start.AddDate(100, 0, 0)
	queue := player.NewQueue(jobs, start, func(workload.Job) bool { return true })
	var events []player.Event
	for at := queue.Next(never); at != never; at = queue.Next(never) {
		due := queue.Due(at)
		queue.Remove(len(due))
		if now := time.Now(); at.Before(now) {
			at = now
		}
		for _, j := range due {
			begun := at.Add(n.launch)
			ended := begun.Add(workload.Seconds(j.Runtime))
			events = append(events, list(j, at, begun, ended)...)
			queue.End(j.ID, ended)
		}
	}
	slices.SortStableFunc(events, func(a, b player.Event) int { return a.Time.Compare(b.Time) })
	for _, e := range events {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Until(e.Time)):
		}
		send(e)
	}
	return nil
}

// list returns the events of a job that is placed at a time. Its tasks run from begun to ended.
func list(j workload.Job, at, begun, ended time.Time) (events []player.Event) {
	for _, kind := range []string{player.Submit, player.Created, player.Bound, player.Launched} {
		events = append(events, player.Event{Time: at, Kind: kind, Job: j.ID})
	}
	for task := range j.Tasks {
		number := task + 1
		if j.Tasks == 1 {
			number = 0
		}
		events = append(events, player.Event{Time: begun, Kind: player.Start, Job: j.ID, Task: number}, player.Event{Time: ended, Kind: player.Last, Job: j.ID, Task: number})
	}
	return append(events, player.Event{Time: ended, Kind: player.Finish, Job: j.ID})
}
