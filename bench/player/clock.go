package player

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"
)

const (
	clockReads   = 5                // times that [ReadClock] reads a clock: the fastest answer has the smallest error
	againTimeout = 5 * time.Second  // of [ReadClockAgain]
	maxDrift     = time.Millisecond // change of a clock's offset during a workload, beyond the errors of its readings, that is no doubt
)

// Clock is a reading of a node's clock, compared with the clock of this machine.
type Clock struct {
	Offset time.Duration // by how much the clock of the node is ahead of the clock of this machine
	Error  time.Duration // maximum error of Offset: half of the duration of the fastest request
	At     time.Time     // what the clock of the node showed
}

// Clocks converts times of a node's clock to the clock of this machine. It contains a reading before and a reading after a workload.
type Clocks struct{ Before, After Clock }

// ReadClock compares the clock of a node with the clock of this machine. date runs the command `date +%s.%N` on the node.
func ReadClock(ctx context.Context, date func(context.Context) ([]byte, error)) (Clock, error) {
	var best Clock
	for i := range clockReads {
		sent := time.Now()
		out, err := date(ctx)
		half := time.Since(sent) / 2
		if err != nil {
			return Clock{}, fmt.Errorf("read the clock: %w", err)
		}
		at, err := ParseTime(strings.TrimSpace(string(out)))
		if err != nil {
			return Clock{}, fmt.Errorf("read the clock: %w", err)
		}
		if i == 0 || half < best.Error {
			best = Clock{Offset: at.Sub(sent.Add(half)), Error: half, At: at}
		}
	}
	return best, nil
}

// ReadClockAgain reads the clock of a node after a workload, also if ctx has ended. It returns both readings, and doubts about
// the times between them.
func ReadClockAgain(ctx context.Context, before Clock, date func(context.Context) ([]byte, error)) (Clocks, []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), againTimeout)
	defer cancel()
	after, err := ReadClock(ctx, date)
	if err != nil {
		return Clocks{before, before}, []string{fmt.Sprintf("the clock of the node could not be compared after the workload: %v", err)}
	}
	drift, allowed := (after.Offset - before.Offset).Abs(), before.Error+after.Error+maxDrift
	if drift <= allowed {
		return Clocks{before, after}, nil
	}
	return Clocks{before, after}, []string{fmt.Sprintf("the clock of the node drifted by %v during the workload, and its readings explain %v",
		drift.Round(time.Microsecond), allowed.Round(time.Microsecond))}
}

// Local returns the time on this machine's clock at which the clock of the node showed the given time. Between the two readings,
// the offset counts as changing evenly; before and after them, it is that of the nearest reading.
func (c Clocks) Local(onNode time.Time) time.Time {
	offset := c.Before.Offset
	if all := c.After.At.Sub(c.Before.At); all > 0 {
		share := min(max(onNode.Sub(c.Before.At).Seconds()/all.Seconds(), 0), 1)
		offset += time.Duration(share * float64(c.After.Offset-c.Before.Offset))
	}
	return onNode.Add(-offset)
}

var timeForm = regexp.MustCompile(`^[0-9]{1,10}\.([0-9]{6}|[0-9]{9})$`)

// ParseTime parses a time in the form of the variable EPOCHREALTIME of bash, seconds with six decimals, or with the nine decimals of date.
func ParseTime(text string) (time.Time, error) {
	since, err := time.ParseDuration(text + "s")
	if err != nil || !timeForm.MatchString(text) {
		return time.Time{}, fmt.Errorf("unexpected time %.60q", text)
	}
	return time.Unix(0, int64(since)), nil
}
