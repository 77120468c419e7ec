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
	connections []int // of the readings of the usage of commands; 0: the reading fails
	requests    []int64
	reads       []string
}

func (p *countingPlayer) Place() player.Place {
	return player.Place{Commands: "client-1", Scheduler: "head-1"}
}

func (p *countingPlayer) Usage(ctx context.Context) (map[string]player.Usage, error) {
	p.reads = append(p.reads, "usage")
	return p.Player.Usage(ctx)
}

func (p *countingPlayer) CommandUsage(context.Context) (player.CommandUsage, error) {
	n := 0
	for _, r := range p.reads {
		if r == "commands" {
			n++
		}
	}
	p.reads = append(p.reads, "commands")
	if p.connections[n] == 0 {
		return player.CommandUsage{}, errors.New("no parent of the command is sshd")
	}
	return player.CommandUsage{Connection: p.connections[n], CPU: 1 + 0.5*float64(n)}, nil
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
	p.Player = null.New(null.Options{})
	b := benchmark()
	b.Repetitions, b.Warmup, b.Retries = 1, 0, 0
	c := &fakeCluster{player: func(WorkloadOptions) (player.Player, error) { return p, nil }}
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

// The result has the requests and the processor time of commands of the workload, and where these ran. What is read closest to the workload are the
// commands, because they count the other readings.
func TestCounters(t *testing.T) {
	p := &countingPlayer{connections: []int{7, 7}, requests: []int64{3, 10}}
	a := runCounting(t, p)
	want := []player.Request{{Program: "api", Verb: "POST", Resource: "jobs", Count: 7}, {Program: "scheduler", Sent: true, Verb: "POST", Count: 14}}
	if diff := cmp.Diff(want, a.Requests); diff != "" {
		t.Error(diff)
	}
	if a.Result.Metrics["requests"] != 7 || a.Result.Metrics["command_cpu"] != 0.5 || *a.Place != p.Place() || len(a.Reasons) > 0 {
		t.Errorf("%+v", a)
	}
	if want := []string{"requests", "usage", "commands", "commands", "usage", "requests"}; !slices.Equal(p.reads, want) {
		t.Errorf("read: %q", p.reads)
	}
}

// A counter that cannot be read, and a connection that was lost, are reasons. The result counts.
func TestCounterErrors(t *testing.T) {
	for want, p := range map[string]*countingPlayer{
		"no parent of the command is sshd":       {connections: []int{7, 0}, requests: []int64{3, 10}},
		"the connection to head-1 was lost":      {connections: []int{7, 8}, requests: []int64{3, 10}},
		"number of requests: connection refused": {connections: []int{7, 7}, requests: []int64{0, 10}},
	} {
		a := runCounting(t, p)
		_, hasRequests := a.Result.Metrics["requests"]
		_, hasCPU := a.Result.Metrics["command_cpu"]
		if len(a.Reasons) != 1 || !strings.Contains(a.Reasons[0], want) || hasRequests == hasCPU || hasRequests != (len(a.Requests) > 0) {
			t.Errorf("%s: %+v", want, a)
		}
	}
}

// The requests of a program's workload are counted, too. Its commands run on this computer, so they have no place in the cluster.
func TestProgramCounters(t *testing.T) {
	p := &countingPlayer{Player: null.New(null.Options{}), requests: []int64{3, 10}}
	b := programBenchmark(writeProgram(t, playScript))
	b.Repetitions = 1
	r := newRunner(t, b, &fakeCluster{command: []string{"true"}, player: func(WorkloadOptions) (player.Player, error) { return p, nil }})
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
