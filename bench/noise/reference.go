package noise

import (
	"context"
	"fmt"
	"time"
)

// referenceRuns is the number of canaries of a reference. Noise makes work slower, and never faster, so the fastest ones are the quietest.
const referenceRuns = 5

// MeasureReference measures the canary of a machine that has no load yet. Each part is the fastest of several canaries.
func MeasureReference(ctx context.Context, dir string) (Canary, error) {
	var best Canary
	for i := range referenceRuns {
		c, err := RunCanary(ctx, dir, nil)
		if err != nil {
			return Canary{}, err
		}
		if i == 0 {
			best = c
		}
		best.Spin, best.Waiting, best.Fsync = min(best.Spin, c.Spin), min(best.Waiting, c.Waiting), min(best.Fsync, c.Fsync)
	}
	return best, nil
}

// complete returns the reference. Parts that the reference does not have are taken from the canary before the trial.
func (c Canary) complete(before *Canary) Canary {
	if before == nil {
		return c
	}
	if c.Spin == 0 {
		c.Spin = before.Spin
	}
	if c.Fsync == 0 {
		c.Fsync = before.Fsync
	}
	if c.RoundTrip == 0 {
		c.RoundTrip = before.RoundTrip
	}
	return c
}

// slow is a part of the canary that was slower than in the reference.
type slow struct{ took, reference time.Duration }

// slowest returns a part of the canaries before and after a trial that is the slowest, or nil if the part or its reference was not measured.
func slowest(reference Canary, part func(Canary) time.Duration, canaries ...*Canary) (out *slow) {
	for _, c := range canaries {
		if c == nil || part(*c) == 0 || part(reference) == 0 {
			continue
		}
		if out == nil || part(*c) > out.took {
			out = &slow{part(*c), part(reference)}
		}
	}
	return out
}

// exceeds reports whether a part took longer than in the reference by more than a share of it and by more than a duration, because a short
// time varies much.
func (s *slow) exceeds(share float64, least time.Duration) bool {
	return s != nil && share >= 0 && s.took-s.reference > least && s.took.Seconds() > s.reference.Seconds()*(1+share)
}

func (s *slow) String() string {
	return fmt.Sprintf("%v instead of %v", s.took.Round(10*time.Microsecond), s.reference.Round(10*time.Microsecond))
}
