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

// Play implements [player.Player].
func (n null) Play(ctx context.Context, jobs []workload.Job, begin func() time.Time, send func(player.Event)) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t := trial{null: n, start: begin(), send: send, ends: map[string]time.Time{}, ended: map[string]bool{}}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for len(t.ended) < len(jobs) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		next := time.Now().Add(time.Hour)
		for _, j := range jobs {
			if at := t.advance(j, time.Now()); at.Before(next) {
				next = at
			}
		}
		timer.Reset(time.Until(next))
	}
	return nil
}

// trial is the state of the jobs during one call of Play.
type trial struct {
	null
	start time.Time
	send  func(player.Event)
	slot  time.Time            // the earliest time at which the next job may be placed, by Options.Rate
	ends  map[string]time.Time // job that was placed → the time at which it ends
	ended map[string]bool
}

// advance submits, places or ends a job if the time for that has come. It returns the time at which to call it again for this
// job.
func (t *trial) advance(j workload.Job, now time.Time) time.Time {
	never := now.Add(time.Hour)
	end, placed := t.ends[j.ID]
	due := t.start.Add(time.Duration(j.Submit * float64(time.Second)))
	for _, a := range j.After {
		if ready := t.ends[a].Add(time.Duration(j.Think * float64(time.Second))); ready.After(due) {
			due = ready
		}
	}
	switch {
	case t.ended[j.ID]:
		return never
	case placed && end.After(now):
		return end
	case placed:
		t.ended[j.ID] = true
		for task := range j.Tasks {
			start, number := end.Add(-time.Duration(j.Runtime*float64(time.Second))), task+1
			if j.Tasks == 1 {
				number = 0
			}
			t.send(player.Event{Time: start, Kind: player.Start, Job: j.ID, Task: number})
			t.send(player.Event{Time: end, Kind: player.Last, Job: j.ID, Task: number})
		}
		t.send(player.Event{Time: end, Kind: player.Finish, Job: j.ID})
		return now // advance the jobs that waited for the end of this job at once
	case slices.ContainsFunc(j.After, func(a string) bool { return !t.ended[a] }):
		return never
	case due.After(now):
		return due
	}
	at := now
	if t.o.Rate > 0 {
		if t.slot.After(now) {
			at = t.slot
		}
		t.slot = at.Add(time.Duration(float64(time.Second) / t.o.Rate))
	}
	for _, e := range []player.Event{{Time: now, Kind: player.Submit}, {Time: now, Kind: player.Created}, {Time: at, Kind: player.Bound}, {Time: at, Kind: player.Launched}} {
		e.Job = j.ID
		t.send(e)
	}
	t.ends[j.ID] = at.Add(t.o.Launch).Add(time.Duration(j.Runtime * float64(time.Second)))
	return t.ends[j.ID]
}
