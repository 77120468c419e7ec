package check

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Look returns what is wrong on the nodes for which nixbench waits, or an empty text. lasts means that waiting rarely solves
// the problem, for example that a systemd unit fails again and again.
type Look func(ctx context.Context) (text string, lasts bool)

const (
	lookAfter = 5 * time.Second // While does not look at the nodes during shorter waits
	lookEvery = 10 * time.Second
	lookTime  = 15 * time.Second // time limit of one look at the nodes
	// lastingLimit is how long the looks at the nodes must report a problem that waiting rarely solves, before While ends the wait.
	lastingLimit = time.Minute
)

// While calls step, which waits for something on nodes, such as a kubelet. If step takes longer than five seconds, While looks at
// the nodes, again every ten seconds, and calls found with each new text. If the looks report for a minute that waiting rarely
// helps, While ends the context of step with a [LastingError]. While returns the last text and the error of step. If look is nil,
// While only calls step.
func (look Look) While(ctx context.Context, found func(text string), step func(context.Context) error) (seen string, _ error) {
	if look == nil {
		return "", step(ctx)
	}
	stepCtx, cancel := context.WithCancelCause(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() {
		var since time.Time // the time of the first look in a row that reported a problem which waiting rarely solves
		for wait := lookAfter; ; wait = lookEvery {
			select {
			case <-time.After(wait):
			case <-stepCtx.Done():
				return
			}
			one, stop := context.WithTimeout(stepCtx, lookTime)
			text, lasts := look(one)
			stop()
			switch {
			case stepCtx.Err() != nil:
				return
			case !lasts:
				since = time.Time{}
			case since.IsZero():
				since = time.Now()
			case time.Since(since) >= lastingLimit:
				cancel(&LastingError{time.Since(since)})
			}
			if text != seen {
				if seen = text; text != "" {
					found(text)
				}
			}
		}
	})
	err := step(stepCtx)
	cancel(nil)
	watcher.Wait()
	return seen, err
}

// LastingError is the cause with which [Look.While] ends a wait for a problem that waiting rarely solves. It wraps
// [context.DeadlineExceeded].
type LastingError struct{ After time.Duration }

func (e *LastingError) Error() string {
	return fmt.Sprintf("it does not work, and did not recover within %v", e.After.Round(time.Second))
}

func (e *LastingError) Unwrap() error { return context.DeadlineExceeded }
