package node

import (
	"testing"
	"time"
)

// A reboot that was written down with a later time than now's is waited for as if it had begun now.
func TestRebootAfterClockWasSetBack(t *testing.T) {
	now := time.Now()
	for since, want := range map[time.Duration]time.Duration{-time.Minute: -time.Minute, 0: 0, 3 * time.Hour: 0} {
		if got := clampToNow(now.Add(since).UTC().Round(0), now); got.Sub(now).Round(time.Millisecond) != want {
			t.Errorf("%v: %v, want %v", since, got.Sub(now), want)
		}
	}
}
