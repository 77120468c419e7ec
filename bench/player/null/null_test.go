package null

import (
	"testing"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/player/playertest"
)

func TestPlayer(t *testing.T) {
	playertest.Run(t, func(*testing.T) player.Player { return New(Options{}) })
}

// A rate limits placements.
func TestRate(t *testing.T) {
	if rate := playertest.Rate(t, New(Options{Rate: 50}), playertest.Burst(50)); rate > 60 {
		t.Errorf("%.0f jobs/s, and the limit is 50", rate)
	}
}
