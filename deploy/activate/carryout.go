package activate

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
)

// runActivation starts the run on the node, follows it, confirms it, and evaluates the result.
func (a *Activator) runActivation(ctx context.Context, node string, h Host, r Request, goal Goal, res Result) (Result, error) {
	w := a.watch(node, h, r.Run, r.Confirm)
	w.patience += r.SettleTime    // the connection may be lost while the node watches the started services
	if res.Before.Current == "" { // there is no system to roll back to, so do not wait for a rollback
		w.patience, w.meanwhile = r.Confirm+maxSilence, "it has no system to roll back to"
	}
	a.send(node, event.NodeStart, event.Activate, string(r.Goal)+" to "+r.Path)
	generation := ""
	if r.generation > 0 {
		generation = strconv.Itoa(r.generation)
	}
	install := "0"
	if r.InstallBootLoader {
		install = "1"
	}
	err := w.follow(ctx, false, "start", r.Run, string(goal), r.Path, r.Specialisation, wholeSeconds(r.Confirm), r.Activator, generation, install, wholeSeconds(r.SettleTime))
	if err == nil && w.run().isAwaitingConfirmation() {
		a.send(node, event.NodeEnd, event.Activate, "waiting for the confirmation")
		a.send(node, event.NodeStart, event.Confirm, "")
		err = w.confirmRun(ctx)
		a.end(node, event.Confirm, w.run(), err)
	} else {
		a.end(node, event.Activate, w.run(), err)
	}
	if err != nil {
		if res.Before.Current == "" {
			r.Confirm = 0
		}
		return res, wrapLostSight(ctx, node, r, w, err)
	}
	return w.evaluate(r, res)
}

// wrapLostSight returns a *LostSightError for a run whose end is unknown, and otherwise err.
func wrapLostSight(ctx context.Context, node string, r Request, w *watch, err error) error {
	var busy *BusyError
	if errors.As(err, &busy) || !w.started {
		return err
	}
	e := &LostSightError{Node: node, Path: r.Path, Armed: r.Confirm, Err: err}
	if ctx.Err() != nil {
		e.Err = context.Cause(ctx)
	}
	return e
}

// evaluate determines the result from the node's record of the run.
func (w *watch) evaluate(r Request, res Result) (Result, error) {
	run := w.run()
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
	failed := &FailedError{
		Node: w.name, Request: r, Result: res, Reason: run.Reason, Jobs: strings.TrimSuffix(strings.TrimSpace(run.jobs), ","),
		From: run.From, ByItself: slices.Contains([]string{reasonUnconfirmed, reasonKilled, reasonRebooted}, run.Reason),
	}
	switch run.Outcome {
	case Committed, Activated, BootDefault:
	default:
		return res, failed
	}
	wanted := run.To
	if run.Outcome == BootDefault {
		wanted = res.After.Current
	}
	if res.After.Current != wanted || run.Outcome != Activated && res.After.Profile != run.path {
		failed.Reason = "elsewhere"
		return res, failed
	}
	return res, nil
}

func (a *Activator) send(node string, kind event.Kind, phase event.Phase, text string) {
	a.Send.Send(event.Event{Kind: kind, Phase: phase, Node: node, Text: text})
}

func (a *Activator) end(node string, phase event.Phase, run Run, err error) {
	failed := err != nil || run.Outcome != Committed && run.Outcome != Activated && run.Outcome != BootDefault
	text := string(run.Outcome)
	if err != nil {
		text = "result unknown"
	}
	a.Send.Send(event.Event{Kind: event.NodeEnd, Phase: phase, Node: node, Text: text, Failed: failed})
}

// rollbackTime is the longest time from the start of a rollback until the node accepts logins.
const rollbackTime = 30 * time.Second

// patience is how long an unreachable node is tried: until a rollback would have ended. The switch
// may last for the confirm time without progress, and the node then waits for a confirmation for
// the same time. Giving up too early does no harm: the node rolls back nevertheless, and the next
// run reads the result.
func patience(confirm time.Duration) time.Duration {
	if confirm == 0 {
		return 5 * time.Minute
	}
	return 2*confirm + rollbackTime
}
