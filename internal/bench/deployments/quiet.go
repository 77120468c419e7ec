package deployments

import (
	"context"
	"time"
)

const (
	quietPeriod  = 600 * time.Millisecond // without work on the nodes
	quietLimit   = 15 * time.Second       // for waiting until then
	quietPercent = 0.5                    // of one processor: the work of an idle node
)

// readUsages returns the processor seconds of each node.
func readUsages(h hierarchy, nodes []node) ([]float64, error) {
	out := make([]float64, len(nodes))
	for i, n := range nodes {
		var err error
		if out[i], err = h.readUsage(n.group); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func sum(values []float64) float64 {
	total := 0.0
	for _, v := range values {
		total += v
	}
	return total
}

// waitQuiet waits until the nodes do almost nothing, because units and the journal still work when the connections have
// ended. It returns the processor seconds of each node at that time. quiet is false if the nodes still work after
// quietLimit.
func waitQuiet(ctx context.Context, h hierarchy, nodes []node) (usages []float64, quiet bool, err error) {
	limit := time.Now().Add(quietLimit)
	for {
		before, err := readUsages(h, nodes)
		if err != nil {
			return nil, false, err
		}
		select {
		case <-ctx.Done():
			return nil, false, ctx.Err()
		case <-time.After(quietPeriod):
		}
		after, err := readUsages(h, nodes)
		if err != nil {
			return nil, false, err
		}
		quiet := sum(after)-sum(before) < quietPercent/100*quietPeriod.Seconds()*float64(len(nodes))
		if quiet || time.Now().After(limit) {
			return after, quiet, nil
		}
	}
}
