package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
)

// prepareLimit is the time limit for the preparations of a player before the workload begins.
const prepareLimit = 2 * time.Minute

// errTimeLimit is the cause that ends a workload after its time limit. Such a trial still has a result: it did not finish.
var errTimeLimit = errors.New("the time limit of the workload has passed")

// submit lets the player prepare itself and then submit the jobs. When the preparations are done, submit calls ready. Then the workload
// begins and its time limit counts. The error wraps errTimeLimit if the limit has passed.
func (a *attempt) submit(ctx context.Context, p player.Player, jobs []workload.Job, limit time.Duration, ready func() error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	name, leave := "prepare", a.enter("prepare")
	timer := time.AfterFunc(prepareLimit, func() { cancel(fmt.Errorf("the player's setup took longer than %v", prepareLimit)) })
	defer func() { timer.Stop() }()
	var notReady error
	begin := sync.OnceValue(func() time.Time {
		if notReady = ready(); notReady != nil {
			cancel(notReady)
			return time.Now()
		}
		timer.Stop()
		leave()
		name, leave = "play", a.enter("play")
		a.start = time.Now()
		timer = time.AfterFunc(limit, func() { cancel(errTimeLimit) })
		return a.start
	})
	err := p.Play(ctx, jobs, begin, func(e player.Event) { a.events = append(a.events, e) })
	a.ended = time.Now()
	leave()
	switch {
	case notReady != nil:
		err = notReady
	case err != nil && !a.start.IsZero():
		// The workload counts until its time limit, also if it broke off: no other job has finished until then. Events between the time
		// limit and the stop of the player do not count.
		a.ended = a.start.Add(limit)
		a.events = slices.DeleteFunc(a.events, func(e player.Event) bool { return e.Time.After(a.ended) })
	case err == nil && a.start.IsZero():
		err = errors.New("the player has not begun the workload")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// enter begins the phase with this name. The caller must call leave when the phase ends, which adds its duration to the attempt.
func (a *attempt) enter(name string) (leave func()) {
	if a.Step != nil {
		a.Step(a.trial, name)
	}
	began := time.Now()
	return func() { a.Phases[name] += time.Since(began).Seconds() }
}

// doubt changes a valid attempt to suspect, and adds the reasons. It does nothing without reasons.
func (a *attempt) doubt(reasons ...string) {
	if len(reasons) > 0 && a.State == Valid {
		a.State = Suspect
	}
	a.Reasons = append(a.Reasons, reasons...)
}

// Limits for the time by which a job is submitted later than intended: maxLate seconds, or a share of the duration of the workload.
const (
	maxLate      = 1.0
	maxLateShare = 0.01
)

// lateness returns a reason why the trial is suspect if jobs were submitted too late. The scheduler then got another workload than
// intended.
func (a *attempt) lateness() []string {
	late := a.Result.Metrics["submit_error_max"]
	took, ok := a.Result.Metrics["makespan"]
	if !ok {
		took = a.ended.Sub(a.start).Seconds()
	}
	if late <= max(maxLate, maxLateShare*took) {
		return nil
	}
	return []string{fmt.Sprintf("jobs were submitted up to %.1f s late: the player or the scheduler's submission is too slow for this rate", late)}
}
