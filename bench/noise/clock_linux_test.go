package noise

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestClock(t *testing.T) {
	for _, tc := range []struct {
		status int32
		offset float64
		wrong  bool
	}{
		{unix.STA_UNSYNC | unix.STA_NANO, 0.002, true},
		{0, 2, false},
	} {
		var s Sample
		s.addClock(&unix.Timex{Status: tc.status, Offset: 2_000_000})
		same(t, "offset", s.Offset, tc.offset)
		if s.ClockWrong == nil || *s.ClockWrong != tc.wrong {
			t.Errorf("status %#x: not the state %v of the clock", tc.status, tc.wrong)
		}
	}
}

func TestSampleContainsClock(t *testing.T) {
	f := newTree(t)
	s := f.sampler(Source{})
	s.clock = func(out *Sample) { out.addClock(&unix.Timex{Status: unix.STA_UNSYNC}) }
	if got := s.Sample(); got.ClockWrong == nil || !*got.ClockWrong {
		t.Error("the clock is said to be synchronised")
	}
}
