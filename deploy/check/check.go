// Package check verifies that a deployment works. A [Condition] is a value with a name, a probe and an interval. [Await] waits until all
// conditions hold. If a condition does not hold in time, Await returns what is missing, with log lines that explain why.
//
// The conditions themselves are defined by the callers and by the packages of the engines.
package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
)

// Condition is a requirement that a probe checks repeatedly until it holds.
type Condition struct {
	Name  string        // `all nodes are Ready`
	Every time.Duration // interval between probes; 0 means 500 ms
	// Limit is the time limit of a single probe, so that an unreachable node does not use up all the time; 0 means 30 s.
	Limit time.Duration
	// Within is the time after which Await stops the probes of this condition. 0 means that only the deadline of Await's context stops them.
	Within time.Duration
	// Probe returns nil if the condition holds. Otherwise the error describes in one line what is missing.
	Probe func(ctx context.Context) error
	// Look is optional. While the condition does not hold, Await calls Look, which returns what is wrong on the nodes, such as a
	// failed systemd unit.
	Look Look
	// Explain is optional. It returns a text that explains why the condition does not hold, such as the last lines of logs.
	Explain func(ctx context.Context) string
}

// Result says whether a condition held, after how many seconds, and otherwise what was missing.
type Result struct {
	Name    string  `json:"name"`
	OK      bool    `json:"ok"`
	Seconds float64 `json:"seconds"`
	Missing string  `json:"missing,omitempty"`
	Why     string  `json:"why,omitempty"` // the last lines of logs that explain why the condition does not hold
}

// Error is the error of [Await] if conditions do not hold in time.
type Error struct{ Results []Result }

// Error returns the conditions that do not hold, one per line, each with what is missing and the log lines that explain why.
func (e *Error) Error() string {
	var failed []string
	for _, r := range e.Results {
		if !r.OK && r.Missing != "" {
			text := fmt.Sprintf("%s: not after %v: %s", r.Name, time.Duration(r.Seconds*float64(time.Second)).Round(100*time.Millisecond), r.Missing)
			if r.Why != "" {
				text += "\n" + r.Why
			}
			failed = append(failed, text)
		}
	}
	return "check: " + strings.Join(failed, "\n")
}

func (e *Error) Kind() failure.Kind { return failure.Check }

const (
	defaultEvery = 500 * time.Millisecond
	defaultLimit = 30 * time.Second
	explainTime  = 20 * time.Second
)

// Await probes the conditions one after the other until all of them hold or ctx ends. Later conditions depend on earlier ones:
// after a condition that does not hold in time, Await does not probe the remaining conditions. The error is an [*Error], or the
// cause of the cancellation of ctx.
func Await(ctx context.Context, conditions []Condition, send event.Sink) ([]Result, error) {
	send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Check, Total: len(conditions)})
	var results []Result
	var err error
	held := 0
	for i, c := range conditions {
		if err != nil {
			results = append(results, Result{Name: c.Name})
			continue
		}
		r := awaitCondition(ctx, c, send, func(missing string) {
			send.Send(event.Event{Kind: event.Progress, Phase: event.Check, Done: i, Total: len(conditions), Text: c.Name + ": " + missing})
		})
		results = append(results, r)
		if r.OK {
			held++
			send.Send(event.Event{Kind: event.Progress, Phase: event.Check, Done: held, Total: len(conditions), Text: c.Name})
			continue
		}
		if err = cancelCause(ctx); err == nil {
			err = &Error{Results: results}
		}
	}
	text := fmt.Sprintf("%d of %d hold", held, len(conditions))
	if err == nil && len(conditions) > 0 {
		text = conditions[len(conditions)-1].Name
	}
	send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Check, Done: held, Total: len(conditions), Failed: err != nil, Text: text})
	return results, err
}

// cancelCause returns why ctx was cancelled, such as Ctrl-C. It returns nil if the deadline of ctx has passed.
func cancelCause(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

// awaitCondition probes the condition c until it holds or ctx ends, and at least once. Whenever the text about what is missing
// changes, awaitCondition calls waiting with the new text.
func awaitCondition(ctx context.Context, c Condition, send event.Sink, waiting func(string)) Result {
	begin := time.Now()
	if c.Within > 0 {
		limited, cancel := context.WithTimeout(ctx, c.Within)
		defer cancel()
		ctx = limited
	}
	missing, found := "", ""
	var mu sync.Mutex // guards missing and found
	say := func(text *string, now string) {
		mu.Lock()
		defer mu.Unlock()
		if *text != now {
			*text = now
			waiting(appendText(missing, "; ", found))
		}
	}
	seen, err := c.Look.While(ctx, func(text string) { say(&found, text) }, func(ctx context.Context) error {
		return Until(ctx, c, func(err error) { say(&missing, err.Error()) })
	})
	took := time.Since(begin).Seconds()
	if err == nil {
		return Result{Name: c.Name, OK: true, Seconds: took}
	}
	r := Result{Name: c.Name, Seconds: took, Missing: missing}
	if !strings.Contains(missing, seen) {
		r.Why = seen
	}
	if c.Explain != nil && cancelCause(ctx) == nil {
		late, stop := context.WithTimeout(context.WithoutCancel(ctx), explainTime)
		wait := send.Wait(event.Event{Phase: event.Check, Text: c.Name + ": logs that explain why it does not hold", Until: time.Now().Add(explainTime)})
		r.Why = appendText(r.Why, "\n", c.Explain(late))
		wait.End()
		stop()
	}
	return r
}

// Until probes the condition c until it holds or ctx ends, and at least once. It calls missing with the error of each probe.
func Until(ctx context.Context, c Condition, missing func(error)) error {
	for first := true; ; first = false {
		limited, cancel := context.WithTimeout(ctx, cmp.Or(c.Limit, defaultLimit))
		err := c.Probe(limited)
		cancel()
		if err == nil {
			return nil
		}
		end, limits := ctx.Deadline()
		if first || ctx.Err() == nil && !(limits && time.Now().After(end)) { // leave out the error of a probe that was cancelled, which says only that it was cancelled
			missing(err)
		}
		if errors.As(err, new(*finalError)) {
			return err
		}
		select {
		case <-time.After(cmp.Or(c.Every, defaultEvery)):
			if limits && !time.Now().Before(end) { // a probe without any time would hide the reason
				<-ctx.Done() // ends now
				return err
			}
		case <-ctx.Done():
			return err
		}
	}
}

// Final marks the error of a probe as final: the condition is not probed again, because waiting does not change the result.
func Final(err error) error { return &finalError{err} }

type finalError struct{ error }

func appendText(text, separator, more string) string {
	if text == "" || strings.Contains(text, more) {
		return cmp.Or(text, more)
	}
	return text + separator + more
}

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
