package trial

import (
	"math"

	"github.com/nixbench/nixbench/bench/player"
)

// nearLimit is the relative distance between a rate and a limit of the scheduler below which the limit determines the rate.
const nearLimit = 0.03

// NearLimit returns the metric that a limit concerns, and whether its value is so near to the limit that the limit determines it. value
// returns the value of a metric. Limits of submissions and finished jobs concern jobs, and limits of creations their rate; all others concern
// placements.
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
