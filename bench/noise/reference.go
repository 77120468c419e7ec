package noise

import (
	"context"
	"fmt"
	"time"
)

// referenceRuns is the number of canaries for a reference. Noise makes work only slower, so the fastest canaries had the least noise.
const referenceRuns = 5

// MeasureReference measures several canaries on a computer that has no load yet. Each part of the result is the fastest of them.
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

// complete returns the reference c. Parts that c does not have are taken from before, the canary before the trial.
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

// slow is the time of a part of a canary (such as the disk write), and the time of this part in the reference.
type slow struct{ took, reference time.Duration }

// slowest returns the slowest time of a part in the canaries before and after a trial. It returns nil if the part was not measured, in the
// canaries or in the reference.
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

// exceeds reports whether a part took longer than in the reference, by more than share of the reference and by more than least. least is
// needed because short times vary much.
func (s *slow) exceeds(share float64, least time.Duration) bool {
	return s != nil && share >= 0 && s.took-s.reference > least && s.took.Seconds() > s.reference.Seconds()*(1+share)
}

func (s *slow) String() string {
	return fmt.Sprintf("%v instead of %v", s.took.Round(10*time.Microsecond), s.reference.Round(10*time.Microsecond))
}
