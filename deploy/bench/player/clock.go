package player

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// clockReads is the number of times that [ReadClock] reads a clock. The fastest answer has the smallest error.
const clockReads = 5

// Clock converts times of a node's clock.
type Clock struct {
	Offset time.Duration // what the clock of the node is ahead of the clock of this machine
	Error  time.Duration // the maximum error of Offset: half of the time of the fastest round trip
}

// ReadClock compares the clock of a node with the clock of this machine. date runs `date +%s%N` on the node.
func ReadClock(ctx context.Context, date func(context.Context) ([]byte, error)) (Clock, error) {
	var best Clock
	for i := range clockReads {
		sent := time.Now()
		out, err := date(ctx)
		half := time.Since(sent) / 2
		if err != nil {
			return Clock{}, fmt.Errorf("read the clock: %w", err)
		}
		nanoseconds, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
		if err != nil || nanoseconds <= 0 {
			return Clock{}, fmt.Errorf("read the clock: date printed %.60q", out)
		}
		if i == 0 || half < best.Error {
			best = Clock{Offset: time.Unix(0, nanoseconds).Sub(sent.Add(half)), Error: half}
		}
	}
	return best, nil
}

// Local returns the time on this machine's clock at which the clock of the node had the given time.
func (c Clock) Local(onNode time.Time) time.Time { return onNode.Add(-c.Offset) }
