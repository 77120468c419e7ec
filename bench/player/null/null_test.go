package null

import (
	"testing"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/player/playertest"
	measure "github.com/nixbench/nixbench/bench/trial"
	"github.com/nixbench/nixbench/bench/workload"
)

func TestPlayer(t *testing.T) {
	playertest.Run(t, func(*testing.T) player.Player { return New(0) })
	playertest.Launch(t, func(_ *testing.T, delay time.Duration) player.Player { return New(delay) })
}

// TestThink: a chain of jobs takes its think times, and no job waits for the scheduler.
func TestThink(t *testing.T) {
	jobs, err := workload.Prepare([]workload.Job{{ID: "a", Runtime: 0.1}, {ID: "b", After: []string{"a"}, Think: 0.4, Runtime: 0.1}, {ID: "c", After: []string{"b"}, Think: 0.3}})
	if err != nil {
		t.Fatal(err)
	}
	events, start, err := playertest.Play(t.Context(), New(0), jobs)
	if err != nil {
		t.Fatal(err)
	}
	got := measure.Measure(jobs, start, time.Now(), events, 1, 0)
	if makespan := got.Metrics["makespan"]; !got.Complete || makespan < 0.899 {
		t.Errorf("jobs of 0.2 s with think times of 0.7 s took %v s", makespan)
	}
	for _, problem := range playertest.Check(jobs, start, events) {
		t.Error(problem)
	}
}
