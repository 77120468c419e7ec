package noise

import (
	"context"
	"runtime"
	"time"
)

// The amount of work of a canary, which is a fixed piece of work. A canary takes about 0.2 s. The reference does the work more often: noise
// makes work only slower, so the fastest time had the least noise.
const (
	spinRuns      = 7
	referenceRuns = 35
	spinSteps     = 10_000_000 // about 20 ms
)

// Canary contains how long a fixed piece of work takes on the machine. It is measured before and after a trial, and not during the trial.
type Canary struct {
	Spin time.Duration `json:"spin"` // the shortest of several wall times of the fixed computation
}

func MeasureReference(ctx context.Context) (Canary, error) { return spin(ctx, referenceRuns) }

// work is the fixed computation of a canary. It returns a result, so that the compiler does not remove the computation.
func work(steps int) uint64 {
	x := uint64(88172645463325252)
	for range steps {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// spin runs the fixed computation several times, and returns the shortest wall time.
func spin(ctx context.Context, runs int) (c Canary, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for range runs {
		if ctx.Err() != nil {
			return Canary{}, context.Cause(ctx)
		}
		begin := time.Now()
		runtime.KeepAlive(work(spinSteps))
		if took := time.Since(begin); c.Spin == 0 || took < c.Spin {
			c.Spin = took
		}
	}
	return c, nil
}
