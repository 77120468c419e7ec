package bench

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/player/null"
)

// countingPlayer is a null player whose commands run on a client, and whose scheduler counts requests.
type countingPlayer struct {
	player.Player
	requests []int64 // 0: the reading fails
	reads    []string
}

var place = player.Place{Commands: "client-1", Scheduler: "head-1"}

func (p *countingPlayer) Observed() player.Observations { return player.Observations{Place: &place} }

func (p *countingPlayer) Usage(ctx context.Context) (map[string]player.Usage, error) {
	p.reads = append(p.reads, "usage")
	return p.Player.Usage(ctx)
}

func (p *countingPlayer) Requests(context.Context) ([]player.Request, error) {
	n := 0
	for _, r := range p.reads {
		if r == "requests" {
			n++
		}
	}
	p.reads = append(p.reads, "requests")
	if p.requests[n] == 0 {
		return nil, errors.New("connection refused")
	}
	return []player.Request{{Program: "api", Verb: "POST", Resource: "jobs", Count: p.requests[n]}, {Program: "scheduler", Sent: true, Verb: "POST", Count: 2 * p.requests[n]}}, nil
}

// runCounting executes one trial, and returns its result.
func runCounting(t *testing.T, p *countingPlayer) Attempt {
	t.Helper()
	p.Player = null.New(0)
	b := benchmark()
	b.Repetitions, b.Warmup, b.Retries = 1, 0, 0
	c := &fakeCluster{player: func(WorkloadOptions, bool) (player.Player, error) { return p, nil }}
	r := newRunner(t, b, c)
	r.Store.Sweep.Trials = r.Store.Sweep.Trials[:1]
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	all, err := r.Store.Attempts(1)
	if err != nil || len(all) != 1 || !all[0].Counts() {
		t.Fatalf("%+v, %v", all, err)
	}
	return all[0]
}

// The result has the requests, and where commands ran. What is read closest to the workload is the usage, because the scheduler receives the
// other readings.
func TestCounters(t *testing.T) {
	p := &countingPlayer{requests: []int64{3, 10}}
	a := runCounting(t, p)
	want := []player.Request{{Program: "api", Verb: "POST", Resource: "jobs", Count: 7}, {Program: "scheduler", Sent: true, Verb: "POST", Count: 14}}
	if diff := cmp.Diff(want, a.Requests); diff != "" {
		t.Error(diff)
	}
	if a.Result.Metrics["requests"] != 7 || *a.Place != place || len(a.Reasons) > 0 {
		t.Errorf("%+v", a)
	}
	if want := []string{"requests", "usage", "usage", "requests"}; !slices.Equal(p.reads, want) {
		t.Errorf("read: %q", p.reads)
	}
}

// A counter that cannot be read is a reason. The result counts.
func TestCounterErrors(t *testing.T) {
	a := runCounting(t, &countingPlayer{requests: []int64{0, 10}})
	if _, has := a.Result.Metrics["requests"]; has || len(a.Reasons) != 1 || !strings.Contains(a.Reasons[0], "number of requests: connection refused") {
		t.Errorf("%+v", a)
	}
}

// The requests of a program's workload are counted, too. Its commands run on this computer, so they have no place in the cluster.
func TestProgramCounters(t *testing.T) {
	p := &countingPlayer{Player: null.New(0), requests: []int64{3, 10}}
	b := programBenchmark(writeProgram(t, playScript))
	b.Repetitions = 1
	r := newRunner(t, b, &fakeCluster{command: []string{"true"}, player: func(WorkloadOptions, bool) (player.Player, error) { return p, nil }})
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	all, err := r.Store.Attempts(1)
	if err != nil || len(all) != 1 || all[0].Result.Metrics["requests"] != 7 || len(all[0].Requests) != 2 || all[0].Place != nil || len(all[0].Reasons) > 0 {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestDescribePlaces(t *testing.T) {
	beside, same := &player.Place{Commands: "client-1", Scheduler: "head-1"}, &player.Place{Commands: "head-1", Scheduler: "head-1"}
	want := []string{
		"The commands that submit and observe jobs ran on client-1, and the scheduler on head-1.",
		"The commands that submit and observe jobs ran on head-1, the node of the scheduler, and used its processors.",
	}
	if diff := cmp.Diff(want, DescribePlaces([]Attempt{{Place: beside}, {}, {Place: same}, {Place: beside}})); diff != "" {
		t.Error(diff)
	}
}

// A scheduler whose jobs have no stamps has no wait, and then no other one has: its results would be compared with something else. A trial in
// which some stamps are lost has none itself.
func TestUnstamped(t *testing.T) {
	for name, test := range map[string]struct {
		unstamped, wait int // of trial 1; number of trials with wait
		note            string
	}{
		"all":     {0, 16, ""},
		"without": {2, 0, "The jobs of 1 of 2 trials do not tell"},
		"lost":    {1, 16, ""},
	} {
		r := newRunner(t, benchmark(), &fakeCluster{})
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		a, err := firstResult(r.Store, 1)
		if err != nil {
			t.Fatal(err)
		}
		a.Result.Unstamped = test.unstamped
		if err := r.Store.finish(*a, nil); err != nil {
			t.Fatal(err)
		}
		all, err := r.Store.AllAttempts()
		if err != nil {
			t.Fatal(err)
		}
		wait := 0
		for _, attempts := range all {
			if _, has := attempts[0].Result.Metrics["wait_p50"]; has {
				wait++
			}
		}
		notes := strings.Join(DescribeStamps([]Attempt{*a, all[2][0]}), " ")
		if wait != test.wait || !strings.HasPrefix(notes, test.note) || (notes == "") != (test.note == "") || all[1][0].Result.Metrics["throughput"] == 0 {
			t.Errorf("%s: %d trials with wait, %q", name, wait, notes)
		}
	}
}
