package noise

import "golang.org/x/sys/unix"

// readClock adds the state of the kernel's clock. It needs no privilege because it changes nothing.
func readClock(out *Sample) {
	var t unix.Timex
	if _, err := unix.Adjtimex(&t); err == nil {
		out.addClock(&t)
	}
}

func (s *Sample) addClock(t *unix.Timex) {
	unit := 1e6
	if t.Status&unix.STA_NANO != 0 {
		unit = 1e9
	}
	s.ClockWrong, s.Offset = new(t.Status&unix.STA_UNSYNC != 0), new(float64(t.Offset)/unit)
}
