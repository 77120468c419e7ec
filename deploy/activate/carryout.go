package activate

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
)

// runActivation starts the activation on the node, follows its output, confirms it, and evaluates its result.
func (a *Activator) runActivation(ctx context.Context, node string, h Host, r Request, goal Goal, res Result) (Result, error) {
	w := a.newWatch(node, h, r.Run, r.Confirm)
	w.patience += r.SettleTime + r.HealthTime // the node may become unreachable during these times, too
	if res.Before.Current == "" {             // a node without a previous system does not roll back, so there is nothing to wait for
		w.patience, w.meanwhile = r.Confirm+maxSilence, "it has no system to roll back to"
	}
	w.afterSwitch, w.checkHealth = r.AfterSwitch, r.CheckHealth
	a.sendEvent(node, event.NodeStart, event.Activate, string(r.Goal)+" to "+r.Path)
	generation := ""
	if r.Generation > 0 {
		generation = strconv.Itoa(r.Generation)
	}
	err := w.follow(ctx, false, "start", r.Run, string(goal), r.Path, r.Specialisation, wholeSeconds(r.Confirm), r.Activator, generation, wholeSeconds(r.SettleTime), r.Observed.fingerprint(), wholeSeconds(r.HealthTime))
	if errors.Is(err, errNodeChanged) {
		a.sendEvent(node, event.NodeEnd, event.Activate, "not started, because the node has changed since it was inspected")
		return res, err
	}
	if err == nil && w.lastRun().isAwaitingConfirmation() {
		a.sendEvent(node, event.NodeEnd, event.Activate, "waiting for the confirmation")
		a.sendEvent(node, event.NodeStart, event.Confirm, "")
		err = w.confirmRun(ctx, r.AfterLogin)
		a.sendEnd(node, event.Confirm, w.lastRun(), err)
	} else {
		a.sendEnd(node, event.Activate, w.lastRun(), err)
	}
	if err != nil {
		if res.Before.Current == "" {
			r.Confirm = 0
		}
		return res, wrapLostSightError(ctx, node, r, w, err)
	}
	return w.evaluate(r, res)
}

// wrapLostSightError returns err in a *LostSightError if the activation may still continue on the node.
func wrapLostSightError(ctx context.Context, node string, r Request, w *watch, err error) error {
	var busy *BusyError
	if errors.As(err, &busy) || !w.started {
		return err
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	left := time.Duration(0)
	if w.lastRun().isAwaitingConfirmation() {
		left = r.Confirm - time.Since(w.observed)
		if w.lastRun().phase == phaseConfirmed {
			left += r.HealthTime
		}
	}
	return newLostSightError(node, r.Path, r.Confirm, left, err)
}

// evaluate returns res with the result that the node has recorded. If the node has not reached the goal of the activation, the
// error is a *FailedError.
func (w *watch) evaluate(r Request, res Result) (Result, error) {
	run := w.lastRun()
	res.After, res.Outcome = w.node, run.Outcome
	res.Broken, res.AlreadyFailing, res.Logs, res.Log = run.broken, run.alreadyFailing, w.units, w.tail
	if code, err := strconv.Atoi(run.code); err == nil {
		res.Exit = code
	}
	if run.Rebooted && run.Outcome == "" {
		run.Reason = reasonRebooted
		if res.After.Current == run.From {
			res.Outcome = RolledBack
		}
	}
	if r.CheckHealth != nil && w.checkHealth == nil {
		r.Confirm += r.HealthTime // the node has waited for so long for the second confirmation
	}
	runs := run.Outcome == BootDefault || res.After.Current == run.To
	boots := run.Outcome == Activated || res.After.Profile == run.path
	switch {
	case run.succeeded() && runs && boots && w.unhealthy == nil:
		return res, nil
	case run.succeeded():
		run.Reason = reasonElsewhere
	}
	return res, &FailedError{Node: w.name, Request: r, Result: res, Run: run, Unhealthy: w.unhealthy}
}

func (a *Activator) sendEvent(node string, kind event.Kind, phase event.Phase, text string) {
	a.Send.Send(event.Event{Kind: kind, Phase: phase, Node: node, Text: text})
}

func (a *Activator) sendEnd(node string, phase event.Phase, run Run, err error) {
	text := string(run.Outcome)
	if err != nil {
		text = "result unknown"
	}
	a.Send.Send(event.Event{Kind: event.NodeEnd, Phase: phase, Node: node, Text: text, Failed: err != nil || !run.succeeded()})
}

// rollbackTime is how long a rollback usually takes at most, until the node accepts logins, without a reboot. rebootTime is the
// additional time if the node reboots after it, because no client can log in.
const (
	rollbackTime = 30 * time.Second
	rebootTime   = time.Minute
)

// computePatience returns how long nixbench tries to connect to a node that does not answer: until a rollback would have ended.
// Before a rollback, the switch may make no progress for the time confirm, and then the node waits for a confirmation for the same
// time. If nixbench gives up too early, the node still rolls back, and nixbench's next run reads the result.
func computePatience(confirm time.Duration) time.Duration {
	if confirm == 0 {
		return 5 * time.Minute
	}
	return 2*confirm + rollbackTime + rebootTime
}

// dryTimeout is the time limit of a dry activation.
const dryTimeout = 5 * time.Minute

// dryActivate runs `switch-to-configuration dry-activate` of the new system, which changes nothing on the node. It returns res
// with the changes of systemd units that this command prints.
func (a *Activator) dryActivate(ctx context.Context, node string, h Host, r Request, res Result) (Result, error) {
	conn, err := h.Conn(ctx)
	if err != nil {
		return res, err
	}
	ctx, cancel := context.WithTimeout(ctx, dryTimeout)
	defer cancel()
	until, _ := ctx.Deadline()
	wait := a.Send.Wait(event.Event{Node: node, Phase: event.Activate, Text: "the node's report of what a switch would do", Until: until})
	defer wait.End()
	err = executeScript(ctx, conn, func(line string) {
		res.Log = append(res.Log, line)
		if action, units, ok := strings.Cut(line, " the following units: "); ok {
			res.Dry = append(res.Dry, strings.TrimPrefix(action, "would ")+" "+units)
		}
		a.sendEvent(node, event.NodeLog, event.Activate, line)
	}, "dry", r.Path, r.Specialisation)
	if err != nil {
		for _, line := range res.Log[max(0, len(res.Log)-10):] {
			err = fmt.Errorf("%w\n  %s", err, line)
		}
		return res, newStepError(node, "dry-activate "+r.Path, err)
	}
	res.Exit = 0
	return res, nil
}
