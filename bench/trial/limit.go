package trial

import (
	"math"

	"github.com/nixbench/nixbench/bench/player"
)

// nearLimit is a relative distance between a measured rate and a limit of the scheduler. If the distance is smaller, the limit determines
// the rate.
const nearLimit = 0.03

// NearLimit reports whether the measured rate that a limit concerns is so near to the limit that the limit determines it. Limits of
// submissions and of finished jobs concern the rate of jobs. Limits of creations concern the rate of creations. All other limits concern
// the rate of placements.
func NearLimit(l player.Limit, metrics map[string]float64) bool {
	metric := "bind_rate"
	switch l.Kind {
	case player.Created:
		metric = "create_rate"
	case player.Submit, player.Finish:
		metric = "throughput"
	}
	rate, ok := metrics[metric]
	return ok && l.Rate > 0 && math.Abs(rate/l.Rate-1) <= nearLimit
}
