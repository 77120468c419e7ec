package player

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// The offset is taken from the fastest answer, which has the smallest error.
func TestReadClock(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, 0, 3 * time.Second} {
		n := 0
		clock, err := ReadClock(t.Context(), func(context.Context) ([]byte, error) {
			if n++; n != 3 { // a slow answer whose way back takes all the time
				defer time.Sleep(20 * time.Millisecond)
			}
			return []byte(epoch(time.Now().Add(ahead))), nil
		})
		if err != nil || n != clockReads {
			t.Fatalf("%d reads, %v", n, err)
		}
		if wrong := (clock.Offset - ahead).Abs(); wrong > clock.Error+time.Millisecond || clock.Error > 9*time.Millisecond {
			t.Errorf("%v ahead: %+v", ahead, clock)
		}
		if age := time.Since(clock.At.Add(-clock.Offset)); age < 0 || age > time.Second {
			t.Errorf("read %v ago", age)
		}
	}
}

// Between two readings, the offset changes evenly.
func TestLocal(t *testing.T) {
	zero := time.Unix(1_700_000_000, 0)
	c := Clocks{Clock{Offset: time.Second, At: zero.Add(time.Second)}, Clock{Offset: 3 * time.Second, At: zero.Add(103 * time.Second)}}
	for onNode, want := range map[float64]float64{0: -1, 1: 0, 52: 50, 103: 100, 203: 200} {
		got := c.Local(zero.Add(time.Duration(onNode * 1e9))).Sub(zero).Seconds()
		if got < want-1e-6 || got > want+1e-6 {
			t.Errorf("%v: %v, want %v", onNode, got, want)
		}
	}
	c.After = c.Before
	if got := c.Local(zero); !got.Equal(zero.Add(-time.Second)) {
		t.Errorf("%v with one reading", got)
	}
}

// A clock that has changed by more than the readings explain is a doubt, also if it cannot be read.
func TestReadClockAgain(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for want, ahead := range map[string]time.Duration{"": 0, "drifted by": 20 * time.Second, "and its readings explain": -20 * time.Second, "connection lost": -1} {
		date := func(offset time.Duration) func(context.Context) ([]byte, error) {
			return func(ctx context.Context) ([]byte, error) {
				if offset == -1 || ctx.Err() != nil {
					return nil, errors.New("connection lost")
				}
				return []byte(epoch(time.Now().Add(offset))), nil
			}
		}
		before, err := ReadClock(t.Context(), date(0))
		if err != nil {
			t.Fatal(err)
		}
		clocks, doubts := ReadClockAgain(ctx, before, date(ahead))
		if (len(doubts) > 0) != (want != "") || len(doubts) > 0 && !strings.Contains(doubts[0], want) {
			t.Errorf("%v ahead: %q", ahead, doubts)
		}
		if ahead != -1 && (clocks.After.Offset-ahead).Abs() > time.Second || clocks.Before != before {
			t.Errorf("%v ahead: %+v", ahead, clocks)
		}
	}
}

func TestParseTime(t *testing.T) {
	if got, err := ParseTime("1700000000.000123"); err != nil || !got.Equal(time.Unix(1_700_000_000, 123_000)) {
		t.Error(got, err)
	}
	for _, text := range []string{"", "1.5", "1,000000", "x.000000", "1.00000x", "1.-00001", "1.0000000"} {
		if got, err := ParseTime(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestReadClockErrors(t *testing.T) {
	failed := errors.New("connection lost")
	if _, err := ReadClock(t.Context(), func(context.Context) ([]byte, error) { return nil, failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
	for _, out := range []string{"", "date: invalid", "-5", "1700000000N"} {
		if c, err := ReadClock(t.Context(), func(context.Context) ([]byte, error) { return []byte(out), nil }); err == nil {
			t.Errorf("%q: %+v", out, c)
		}
	}
}

// epoch returns a time as the command date prints it.
func epoch(t time.Time) string { return fmt.Sprintf("%d.%09d", t.Unix(), t.Nanosecond()) }
