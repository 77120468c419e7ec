package trial

import (
	"math"

	"github.com/nixbench/nixbench/bench/player"
)

// nearLimit is a relative distance between a measured rate and a limit of the scheduler. If the distance is smaller, the limit determines
// the rate.
const nearLimit = 0.03

// NearLimit returns the metric that a limit concerns. It also returns whether the value of the metric is so near to the limit that the
// limit determines the value. The function value returns the value of a metric. Limits of submissions and of finished jobs concern the
// rate of jobs. Limits of creations concern the rate of creations. All other limits concern the rate of placements.
func NearLimit(l player.Limit, value func(metric string) (float64, bool)) (metric string, near bool) {
	metric = "bind_rate"
	switch l.Kind {
	case player.Created:
		metric = "create_rate"
	case player.Submit, player.Finish:
		metric = "throughput"
	}
	rate, ok := value(metric)
	return metric, ok && l.Rate > 0 && math.Abs(rate/l.Rate-1) <= nearLimit
}
