// Package playertest has the tests that every player must pass.
package playertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/trial"
	"github.com/nixbench/nixbench/bench/workload"
)

const (
	playTimeout = 2 * time.Minute       // for a small workload: a real scheduler may wait half a minute before it places a job
	stopAfter   = time.Second           // how long a workload runs before testStop ends its context
	stopTimeout = 10 * time.Second      // for Play to return after its context has ended
	clockError  = 10 * time.Millisecond // how far the clocks of two machines may be apart
)

// Run tests a player. newPlayer returns a player of a cluster with at least two nodes that is free of other jobs.
func Run(t *testing.T, newPlayer func(t *testing.T) player.Player) {
	for name, jobs := range map[string][]workload.Job{
		"burst": burst(20),
		"gang":  {{ID: "gang", Nodes: 2, Runtime: 0.1, Gang: true}},
		"after": {
			{ID: "first", Runtime: 0.2}, {ID: "other", Runtime: 0},
			{ID: "second", Runtime: 0.1, After: []string{"first"}}, {ID: "third", After: []string{"second", "other"}},
		},
		"think": {
			{ID: "first", Runtime: 0.2}, {ID: "other", After: []string{"first"}}, {ID: "second", After: []string{"first"}, Think: 0.6},
			{ID: "third", After: []string{"second", "other"}, Think: 0.3}, {ID: "fourth", Submit: 0.7},
		},
		"later": {{ID: "now", Runtime: 0}, {ID: "later", Submit: 0.3, Runtime: 0}, {ID: "last", Submit: 0.3, Runtime: 0.1}},
		"mixed": append(burst(5), workload.Job{ID: "wide", Nodes: 2, Runtime: 0.1}, workload.Job{ID: "end", Submit: 0.2, After: []string{"b-1", "wide"}}),
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlayer(t)
			prepared, err := workload.Prepare(jobs)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second run checks that Clean has removed everything that could disturb a workload with the same ids
				ctx, cancel := context.WithTimeoutCause(t.Context(), playTimeout, fmt.Errorf("the jobs have not ended within %v", playTimeout))
				defer cancel()
				events, start, err := Play(ctx, p, prepared)
				if err != nil {
					t.Fatal(err)
				}
				for _, problem := range Check(prepared, start, events) {
					t.Error(problem)
				}
				clean(t, p)
			}
		})
	}
	t.Run("stop", func(t *testing.T) { testStop(t, newPlayer(t)) })
	t.Run("limits and usage", func(t *testing.T) {
		p := newPlayer(t)
		limits, err := p.Limits(t.Context())
		if err != nil {
			t.Error(err)
		}
		for _, l := range limits {
			if l.Name == "" || l.Value == "" || l.Rate < 0 || (l.Rate > 0) != (l.Kind != "") {
				t.Errorf("limit %+v", l)
			}
		}
		usage, err := p.Usage(t.Context())
		if err != nil {
			t.Error(err)
		}
		for part, u := range usage {
			if part == "" || u.CPU < 0 || u.Memory <= 0 {
				t.Errorf("usage of %q: %+v", part, u)
			}
		}
	})
}

// launchDelay is the time from the placement of a job to its first instruction that Launch plants, and launchSpare the time that the rest may
// take on a computer with other work.
const (
	launchDelay = 500 * time.Millisecond
	launchSpare = 5 * time.Second
)

// Launch tests that the metrics mean the same with every player: newPlayer returns a player of a scheduler that takes no time, whose jobs
// execute their first instruction the given time after their placement.
func Launch(t *testing.T, newPlayer func(t *testing.T, delay time.Duration) player.Player) {
	t.Run("launch", func(t *testing.T) {
		jobs, err := workload.Prepare([]workload.Job{{ID: "a"}, {ID: "b", Runtime: 0.2}, {ID: "gang", Nodes: 2, Gang: true}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), playTimeout)
		defer cancel()
		p := newPlayer(t, launchDelay)
		events, start, err := Play(ctx, p, jobs)
		if err != nil {
			t.Fatal(err)
		}
		clean(t, p)
		r := trial.Measure(jobs, start, time.Now(), events, 2, 0)
		for _, name := range []string{"wait_p50", "wait_max", "start_p50"} {
			least, most := (launchDelay - clockError).Seconds(), (launchDelay + launchSpare).Seconds()
			if v := r.Metrics[name]; v < least || v > most || r.Unstamped != 0 {
				t.Errorf("%s is %v s with a delay of %v; %d jobs have no stamps", name, v, launchDelay, r.Unstamped)
			}
		}
	})
}

func burst(n int) []workload.Job {
	var jobs []workload.Job
	for i := range n {
		jobs = append(jobs, workload.Job{ID: fmt.Sprintf("b-%d", i+1), Runtime: 0.05})
	}
	return jobs
}

// testStop tests two things: Play returns the cause when its context ends, and Clean removes the jobs that still run.
func testStop(t *testing.T, p player.Player) {
	jobs, err := workload.Prepare([]workload.Job{{ID: "long", Runtime: 3600}, {ID: "never", Submit: 3600}, {ID: "blocked", After: []string{"long"}}})
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("the trial was stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	submitted := false
	begin := func() time.Time {
		time.AfterFunc(stopAfter, func() { cancel(cause) })
		return time.Now()
	}
	err = p.Play(ctx, jobs, begin, func(e player.Event) {
		switch {
		case e.Job == "long" && e.Kind == player.Submit:
			submitted = true
		case e.Job == "never", e.Kind == player.Finish, e.Kind == player.Failed:
			t.Errorf("unexpected event: %+v", e)
		}
	})
	stopped := time.Now()
	if !errors.Is(err, cause) {
		t.Errorf("Play returned %v, want %v", err, cause)
	}
	if !submitted {
		t.Error("the first job was not submitted")
	}
	clean(t, p)
	if took := time.Since(stopped); took > playTimeout {
		t.Errorf("Clean took %v", took)
	}
	ended, stop := context.WithCancelCause(t.Context())
	stop(cause)
	called := time.Now()
	if _, _, err := Play(ended, p, jobs); !errors.Is(err, cause) || time.Since(called) > stopTimeout {
		t.Errorf("a context that has ended: %v after %v", err, time.Since(called))
	}
	clean(t, p)
}

// clean removes all jobs with two calls of Clean. The second call tests that Clean succeeds without jobs.
func clean(t *testing.T, p player.Player) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), playTimeout)
	defer cancel()
	for range 2 {
		if err := p.Clean(ctx); err != nil {
			t.Errorf("clean: %v", err)
		}
	}
}

// Play runs a workload. It returns the events in the order of their times, and the start of the workload. It returns an error if
// the player does not call begin exactly once, or sends events before that.
func Play(ctx context.Context, p player.Player, jobs []workload.Job) (events []player.Event, start time.Time, err error) {
	begun, early := 0, 0
	begin := func() time.Time {
		begun, early, start = begun+1, len(events), time.Now()
		return start
	}
	err = p.Play(ctx, jobs, begin, func(e player.Event) { events = append(events, e) })
	if err == nil && (begun != 1 || early > 0) {
		err = fmt.Errorf("the player began the workload %d times, and sent %d events before", begun, early)
	}
	slices.SortStableFunc(events, func(a, b player.Event) int { return a.Time.Compare(b.Time) })
	return events, start, err
}

// Check returns what is wrong with the events of a workload in which all jobs must succeed.
func Check(jobs []workload.Job, start time.Time, events []player.Event) []string {
	var problems []string
	addf := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	times := map[string]map[string]time.Time{}
	known := map[string]workload.Job{}
	for _, j := range jobs {
		times[j.ID] = map[string]time.Time{}
		known[j.ID] = j
	}
	for _, e := range events {
		j, ok := known[e.Job]
		switch {
		case !ok:
			addf("an event of an unknown job: %+v", e)
		case e.Kind == player.Failed || !slices.Contains(player.Kinds, e.Kind):
			addf("unexpected event: %+v", e)
		case e.Task < 0 || e.Task > j.Tasks:
			addf("an event of an unknown task: %+v", e)
		case e.Task > 0: // not every scheduler has events of tasks
		case !times[e.Job][e.Kind].IsZero():
			addf("job %s has two events %s", e.Job, e.Kind)
		default:
			times[e.Job][e.Kind] = e.Time
		}
	}
	for _, j := range jobs {
		has := times[j.ID]
		last := player.Submit
		for _, kind := range player.Kinds {
			switch {
			case has[kind].IsZero():
			case has[kind].Before(has[last].Add(-clockError)):
				addf("job %s: %s is %v before %s", j.ID, kind, has[last].Sub(has[kind]), last)
			default:
				last = kind
			}
		}
		for _, kind := range []string{player.Submit, player.Created, player.Bound, player.Finish} {
			if has[kind].IsZero() {
				addf("job %s has no event %s", j.ID, kind)
			}
		}
		intended := start.Add(workload.Seconds(j.Submit))
		if has[player.Submit].Before(intended.Add(-clockError)) {
			addf("job %s was submitted %v too early", j.ID, intended.Sub(has[player.Submit]))
		}
		for _, a := range j.After {
			if begin := has[player.Bound]; begin.Before(times[a][player.Finish].Add(-clockError)) {
				addf("job %s was placed %v before the end of %s", j.ID, times[a][player.Finish].Sub(begin), a)
			}
			think := workload.Seconds(j.Think)
			if thought := has[player.Submit].Sub(times[a][player.Finish]); think > 0 && thought < think-clockError {
				addf("job %s was submitted %v after the end of %s, and its think time is %v", j.ID, thought, a, think)
			}
		}
	}
	return problems
}
