package null_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/player/null"
	"github.com/nixbench/nixbench/bench/player/playertest"
	"github.com/nixbench/nixbench/bench/workload"
)

func TestContract(t *testing.T) {
	for name, o := range map[string]null.Options{
		"ideal": {}, "slow": {Rate: 200}, "two nodes": {Nodes: 2}, "two slow nodes": {Nodes: 2, CPUs: 4, Rate: 500},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			playertest.Run(t, func(*testing.T) player.Player { return null.New(o) })
		})
	}
}

func play(t *testing.T, o null.Options, jobs []workload.Job) []player.Event {
	t.Helper()
	prepared, err := workload.Prepare(jobs)
	if err != nil {
		t.Fatal(err)
	}
	events, _, err := playertest.Play(t.Context(), null.New(o), prepared)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// times returns the times of the events of a kind, in their order.
func times(events []player.Event, kind string) []time.Time {
	var out []time.Time
	for _, e := range events {
		if e.Kind == kind && e.Task == 0 {
			out = append(out, e.Time)
		}
	}
	return out
}

func equal(n int, j workload.Job) []workload.Job {
	var out []workload.Job
	for i := range n {
		j.ID = fmt.Sprintf("j-%d", i)
		out = append(out, j)
	}
	return out
}

// The rate limits the events bound, also when the player wakes late.
func TestRate(t *testing.T) {
	bound := times(play(t, null.Options{Rate: 1000}, equal(200, workload.Job{Runtime: 0.01})), player.Bound)
	if len(bound) != 200 {
		t.Fatalf("%d jobs were placed", len(bound))
	}
	for i := range bound[1:] {
		if gap := bound[i+1].Sub(bound[i]); gap < time.Millisecond {
			t.Fatalf("two jobs were placed within %v", gap)
		}
	}
	if took := bound[199].Sub(bound[0]); took > 220*time.Millisecond {
		t.Errorf("200 jobs were placed in %v", took)
	}
	limits, err := null.New(null.Options{Rate: 1000}).Limits(t.Context())
	if err != nil || len(limits) != 1 || limits[0].Rate != 1000 || limits[0].Kind != player.Bound || limits[0].Value != "1000" {
		t.Errorf("%+v, %v", limits, err)
	}
}

// Ten jobs of 20 ms on two nodes take exactly 100 ms after the first was placed.
func TestNodes(t *testing.T) {
	events := play(t, null.Options{Nodes: 2}, equal(10, workload.Job{Runtime: 0.02}))
	busy := map[string]string{}
	for _, e := range events {
		switch {
		case e.Kind == player.Start && busy[e.Node] != "":
			t.Errorf("%s runs on %s together with %s", e.Job, e.Node, busy[e.Node])
		case e.Kind == player.Start:
			busy[e.Node] = e.Job
		case e.Kind == player.Finish:
			delete(busy, e.Node)
		}
	}
	start, finish := times(events, player.Start), times(events, player.Finish)
	if len(finish) != 10 {
		t.Fatalf("%d jobs finished", len(finish))
	}
	if took := finish[9].Sub(start[0]); took < 100*time.Millisecond || took > 101*time.Millisecond {
		t.Errorf("took %v", took)
	}
}

// The tasks of a gang have events of their own, on different nodes.
func TestTasks(t *testing.T) {
	nodes := map[string]int{}
	events := play(t, null.Options{Nodes: 2, CPUs: 2}, []workload.Job{{ID: "gang", Nodes: 2, Tasks: 4, Runtime: 0.01, Gang: true}})
	for _, e := range events {
		if e.Kind == player.Start && e.Task > 0 {
			nodes[e.Node]++
		}
	}
	if fmt.Sprint(nodes) != "map[null-1:2 null-2:2]" {
		t.Errorf("%v in %+v", nodes, events)
	}
}

// A job that no node can run fails and does not block the others. A job that waits for it runs.
func TestImpossible(t *testing.T) {
	events := play(t, null.Options{Nodes: 2, CPUs: 2}, []workload.Job{{ID: "big", CPUs: 3}, {ID: "wide", Nodes: 3}, {ID: "small", After: []string{"big", "wide"}}})
	failed := 0
	for _, e := range events {
		if e.Kind == player.Failed && strings.Contains(e.Text, "cannot run the job") && e.Job != "small" {
			failed++
		}
	}
	if failed != 2 || len(times(events, player.Finish)) != 1 {
		t.Errorf("%+v", events)
	}
}

// The reference is faster than any scheduler that is measured with it. BenchmarkPlay measures how fast; the limit here allows for a loaded
// machine, and fails if the time of a job grows with the number of jobs.
func TestSpeed(t *testing.T) {
	const n = 20000
	begin := time.Now()
	events := play(t, null.Options{Nodes: 100, CPUs: 4}, equal(n, workload.Job{}))
	if took := time.Since(begin); took > 10*time.Second || len(times(events, player.Finish)) != n {
		t.Errorf("%d of %d jobs in %v", len(times(events, player.Finish)), n, took)
	}
}

func BenchmarkPlay(b *testing.B) {
	jobs, err := workload.Prepare(equal(b.N, workload.Job{}))
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	if err := null.New(null.Options{Nodes: 100, CPUs: 4}).Play(b.Context(), jobs, time.Now, func(player.Event) {}); err != nil {
		b.Fatal(err)
	}
}

func TestPlayerRate(t *testing.T) { playertest.TestRate(t, null.New(null.Options{}), 1000) }
