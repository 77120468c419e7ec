package player

import (
	"context"
	"errors"
	"strconv"
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
			return strconv.AppendInt(nil, time.Now().Add(ahead).UnixNano(), 10), nil
		})
		if err != nil || n != clockReads {
			t.Fatalf("%d reads, %v", n, err)
		}
		if wrong := (clock.Offset - ahead).Abs(); wrong > clock.Error+time.Millisecond || clock.Error > 9*time.Millisecond {
			t.Errorf("%v ahead: %+v", ahead, clock)
		}
		now := time.Now()
		if got := clock.Local(now.Add(clock.Offset)); !got.Equal(now) {
			t.Errorf("%v, want %v", got, now)
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
