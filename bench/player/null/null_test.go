package null

import (
	"fmt"
	"testing"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/player/playertest"
	"github.com/nixbench/nixbench/bench/workload"
)

func TestPlayer(t *testing.T) {
	playertest.Run(t, func(*testing.T) player.Player { return New(Options{}) })
	playertest.Launch(t, func(_ *testing.T, delay time.Duration) player.Player { return New(Options{Launch: delay}) })
}

// A rate limits placements.
func TestRate(t *testing.T) {
	var jobs []workload.Job
	for i := range 50 {
		jobs = append(jobs, workload.Job{ID: fmt.Sprint("b-", i), Tasks: 1})
	}
	events, start, err := playertest.Play(t.Context(), New(Options{Rate: 50}), jobs)
	if took := events[len(events)-1].Time.Sub(start); err != nil || took < 900*time.Millisecond {
		t.Errorf("50 jobs took %v at 50 jobs/s, %v", took, err)
	}
}
