package noise

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// The amount of work of a canary, which is a fixed piece of work. A canary takes about 0.2 s.
const (
	spinRuns   = 7
	spinSteps  = 10_000_000 // about 20 ms
	fsyncRuns  = 9
	roundTrips = 21
)

// Canary contains how long a fixed piece of work takes on the machine. It is measured before and after a trial, and not during the trial.
type Canary struct {
	Spin      time.Duration `json:"spin"`                // the shortest of several wall times of the fixed computation
	Waiting   float64       `json:"waiting"`             // share of the wall time of all runs of the computation in which the thread did not run
	Fsync     time.Duration `json:"fsync"`               // median time until 4 KiB are on the disk
	RoundTrip time.Duration `json:"roundTrip,omitempty"` // median time of a request to a node and its answer; 0: it was not measured
}

// RunCanary does the fixed work and measures its times. It writes a temporary file in dir. once sends a request to a node and returns the
// time until the answer. If once is nil, this is not measured.
func RunCanary(ctx context.Context, dir string, once func(context.Context) (time.Duration, error)) (Canary, error) {
	var c Canary
	var err error
	if c.Spin, c.Waiting, err = spin(ctx); err != nil {
		return Canary{}, fmt.Errorf("canary: measure the processor: %w", err)
	}
	if c.Fsync, err = syncFile(ctx, dir); err != nil {
		return Canary{}, fmt.Errorf("canary: measure the disk: %w", err)
	}
	if once != nil {
		if c.RoundTrip, err = roundTrip(ctx, once); err != nil {
			return Canary{}, fmt.Errorf("canary: measure the round trip to a node: %w", err)
		}
	}
	return c, nil
}

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

// spin runs the fixed computation several times. It returns the shortest wall time, and the share of the time in which the thread did not
// run.
func spin(ctx context.Context) (best time.Duration, waiting float64, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var wall, used time.Duration
	for range spinRuns {
		if ctx.Err() != nil {
			return 0, 0, context.Cause(ctx)
		}
		cpu, err := threadTime()
		if err != nil {
			return 0, 0, err
		}
		begin := time.Now()
		runtime.KeepAlive(work(spinSteps))
		took := time.Since(begin)
		after, err := threadTime()
		if err != nil {
			return 0, 0, err
		}
		wall, used = wall+took, used+after-cpu
		if best == 0 || took < best {
			best = took
		}
	}
	return best, max(0, 1-used.Seconds()/wall.Seconds()), nil
}

// threadTime returns the processor time of the current thread.
func threadTime() (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano()), err
}

// syncFile writes 4 KiB to a temporary file several times, and returns the median time until they are on the disk.
func syncFile(ctx context.Context, dir string) (time.Duration, error) {
	f, err := os.CreateTemp(dir, ".canary-*")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	var took []time.Duration
	block := make([]byte, 4<<10)
	for i := range fsyncRuns {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		block[0] = byte(i)
		begin := time.Now()
		if _, err := f.WriteAt(block, 0); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(begin))
	}
	return median(took), nil
}

// roundTrip calls once several times, and returns the median time of a request to a node and its answer.
func roundTrip(ctx context.Context, once func(context.Context) (time.Duration, error)) (time.Duration, error) {
	var took []time.Duration
	for range roundTrips {
		t, err := once(ctx)
		if err != nil {
			return 0, err
		}
		took = append(took, t)
	}
	return median(took), nil
}

func median(values []time.Duration) time.Duration {
	slices.Sort(values)
	return values[len(values)/2]
}
