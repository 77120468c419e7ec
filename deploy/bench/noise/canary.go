package noise

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The amounts of work of a canary. A canary takes about 0.2 s.
const (
	spinRuns   = 7
	spinSteps  = 10_000_000 // about 20 ms
	fsyncRuns  = 5
	pipeRounds = 200
)

// Canary contains how long fixed work takes on the machine. It is measured before and after a trial, not during it.
type Canary struct {
	Spin    time.Duration `json:"spin"`    // best wall time of the same work with integers
	Waiting float64       `json:"waiting"` // share of the wall time of all these runs during which the thread did not run
	Fsync   time.Duration `json:"fsync"`   // median time until 4 KiB are on the disk
	Pipe    time.Duration `json:"pipe"`    // median time of a byte from one thread to another and back
}

// RunCanary measures a canary. It writes a temporary file in dir.
func RunCanary(ctx context.Context, dir string) (Canary, error) {
	var c Canary
	var err error
	if c.Spin, c.Waiting, err = spin(ctx); err != nil {
		return Canary{}, fmt.Errorf("canary: measure the processor: %w", err)
	}
	if c.Fsync, err = syncFile(ctx, dir); err != nil {
		return Canary{}, fmt.Errorf("canary: measure the disk: %w", err)
	}
	if c.Pipe, err = pipeRound(ctx); err != nil {
		return Canary{}, fmt.Errorf("canary: measure a pipe: %w", err)
	}
	return c, nil
}

// work computes with integers. Its result keeps the compiler from removing it.
func work(steps int) uint64 {
	x := uint64(88172645463325252)
	for range steps {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

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

func pipeRound(ctx context.Context) (time.Duration, error) {
	there, err := openPipe()
	if err != nil {
		return 0, err
	}
	back, err := openPipe()
	if err != nil {
		unix.Close(there[0])
		unix.Close(there[1])
		return 0, err
	}
	done := make(chan struct{})
	go func() { // returns each byte, until the first pipe is closed
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer unix.Close(back[1])
		defer unix.Close(there[0])
		b := make([]byte, 1)
		for transfer(unix.Read, there[0], b) == nil && transfer(unix.Write, back[1], b) == nil {
		}
	}()
	defer func() {
		unix.Close(there[1])
		<-done
		unix.Close(back[0])
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var took []time.Duration
	b := make([]byte, 1)
	for range pipeRounds {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		begin := time.Now()
		if err := transfer(unix.Write, there[1], b); err != nil {
			return 0, err
		}
		if err := transfer(unix.Read, back[0], b); err != nil {
			return 0, err
		}
		took = append(took, time.Since(begin))
	}
	return median(took), nil
}

// openPipe returns the ends for reading and for writing of a pipe that other programs do not inherit.
func openPipe() ([2]int, error) {
	syscall.ForkLock.RLock() // no program is started before both ends are close-on-exec: macOS has no pipe2
	defer syscall.ForkLock.RUnlock()
	var ends [2]int
	if err := unix.Pipe(ends[:]); err != nil {
		return ends, err
	}
	unix.CloseOnExec(ends[0])
	unix.CloseOnExec(ends[1])
	return ends, nil
}

// transfer reads or writes one byte.
func transfer(call func(int, []byte) (int, error), fd int, b []byte) error {
	for {
		switch n, err := call(fd, b); {
		case err == unix.EINTR:
		case err != nil:
			return err
		case n != 1:
			return fmt.Errorf("the pipe is closed")
		default:
			return nil
		}
	}
}

func median(values []time.Duration) time.Duration {
	slices.Sort(values)
	return values[len(values)/2]
}
