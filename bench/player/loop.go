package player

import (
	"context"
	"time"
)

// maxFailures is the number of readings that may fail one after the other.
const maxFailures = 5

// Task is work that [Loop] does in the background, such as a submission. Loop then calls the returned function in its own
// goroutine, to take over the result.
type Task func() (takeOver func() error)

// Reading is a reading that [Loop] does in the background. Loop then calls the returned function in its own goroutine.
type Reading func(ctx context.Context) (takeOver func() error, err error)

// Loop submits the jobs of a workload and reads what happened to the jobs. Submissions and readings run in the background; Loop
// calls all other functions from one goroutine.
type Loop struct {
	Poll  time.Duration // between two readings
	Tasks int           // maximum number of submissions at the same time
	Done  func() bool   // reports whether all jobs have ended
	// Submit returns the next submission that is due. If no submission is due, it returns nil and the time at which Loop calls Submit again.
	Submit func(now time.Time) (Task, time.Time)
	// Read returns the next reading of what happened to the jobs. A reading that fails is repeated. The loop ends after
	// [maxFailures] failures in a row. There is a last reading after ctx has ended, when the running submissions have ended or have
	// had a short time to end. The last reading (last is true) has little time: it only reads what has happened, and neither waits nor
	// looks for missing events.
	Read func(last bool) Reading
}

// Run submits jobs and reads what happens to them until all jobs have ended. When ctx ends, it returns the cause of that end.
func (l Loop) Run(ctx context.Context) error {
	submissions, readings := make(chan func() error, l.Tasks), make(chan reading, 1)
	submitting, failures, isReading, read := 0, 0, false, time.Now()
	for !l.Done() {
		now := time.Now()
		wake := now.Add(l.Poll)
		for submitting < l.Tasks {
			task, due := l.Submit(now)
			if task == nil {
				wake = earlier(wake, due)
				break
			}
			submitting++
			go func() { submissions <- task() }()
		}
		if !isReading && now.Before(read.Add(l.Poll)) {
			wake = earlier(wake, read.Add(l.Poll))
		} else if !isReading {
			isReading = true
			next := l.Read(false)
			go func() {
				takeOver, err := next(ctx)
				readings <- reading{takeOver, err}
			}()
		}
		timer := time.NewTimer(time.Until(wake))
		var err error
		select {
		case <-ctx.Done():
		case <-timer.C:
		case takeOver := <-submissions:
			submitting--
			err = takeOver()
		case r := <-readings:
			isReading, read = false, time.Now()
			if failures++; r.err == nil {
				failures, err = 0, r.takeOver()
			} else if failures == maxFailures {
				err = r.err
			}
		}
		timer.Stop()
		switch {
		case ctx.Err() != nil:
			return l.stop(ctx, submissions, submitting)
		case err != nil:
			return err
		}
	}
	return nil
}

type reading struct {
	takeOver func() error
	err      error
}

// stop takes over what has happened to the jobs until the end of ctx. It returns the cause of the end of ctx.
func (l Loop) stop(ctx context.Context, submissions <-chan func() error, submitting int) error {
	wait, cancel := lastContext(ctx)
	defer cancel()
	for ; submitting > 0 && wait.Err() == nil; submitting-- {
		select {
		case takeOver := <-submissions:
			_ = takeOver() // an error only means that ctx has ended
		case <-wait.Done():
		}
	}
	last, cancel := lastContext(ctx)
	defer cancel()
	if takeOver, err := l.Read(true)(last); err == nil {
		_ = takeOver()
	}
	return context.Cause(ctx)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
