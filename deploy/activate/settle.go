package activate

import (
	"context"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
)

const (
	// Whoever watches a run touches a file on the node every second. Looking at it
	// for a moment tells a run that was abandoned from one that is being watched.
	abandonedAfter = 5 * time.Second
	observeFor     = 6 * time.Second
)

// FinishPrevious ends what a killed run left on the node, so that nothing stays armed.
// A switch that still runs is waited for. One that waits for a confirmation is
// confirmed if it is to the system wanted: we have just logged in. Else the node
// goes back now. Of a run that a reboot cut off only the record is left, and what it
// kept from the garbage collector. FinishPrevious returns the run, or nil if there was nothing to settle,
// and a *BusyError if somebody is watching the run.
func (a *Activator) FinishPrevious(ctx context.Context, node string, h Host, wanted string) (*Run, error) {
	n, err := a.Inspect(ctx, node, h)
	if err != nil || !n.HasUnfinishedRun() {
		return nil, err
	}
	return a.finishPrevious(ctx, node, h, n, Request{Path: wanted})
}

// HasUnfinishedRun reports whether there is something for FinishPrevious to do.
func (n Node) HasUnfinishedRun() bool {
	return n.Last != nil && (n.Last.Alive || n.Last.phase != "done")
}

func (a *Activator) finishPrevious(ctx context.Context, node string, h Host, n Node, r Request) (*Run, error) {
	var err error
	left := event.Event{Node: node, Phase: event.Activate, Text: "the end of run " + n.Last.ID + ", which an earlier nixbench has left there"}
	if n.Last.Armed > 0 {
		left.Until = time.Now().Add(n.Last.Remaining + patience(n.Last.Armed))
	}
	wait := a.Send.Wait(left)
	defer wait.End()
	for begin := time.Now(); n.Last.Alive && n.Last.Seen < abandonedAfter; {
		if time.Since(begin) > observeFor {
			return nil, &BusyError{Node: node, Run: n.Last}
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if n, err = a.inspect(ctx, node, h, r); err != nil {
			return nil, err
		}
	}
	if !n.Last.Alive {
		if n.Last.phase == "done" {
			return n.Last, nil
		}
		conn, err := h.Conn(ctx)
		if err != nil {
			return nil, err
		}
		return n.Last, runFromStdin(ctx, conn, func(string, string) {}, "forget", n.Last.ID)
	}
	w := a.watch(node, h, n.Last.ID, n.Last.Armed)
	if err := w.follow(ctx, false, "follow", n.Last.ID); err != nil {
		return nil, err
	}
	if run := w.run(); run.isAwaitingConfirmation() {
		if run.path == r.Path {
			err = w.confirmRun(ctx)
		} else {
			err = w.follow(ctx, true, "abort", run.ID)
		}
		if err != nil {
			return nil, err
		}
	}
	run := w.run()
	return &run, nil
}
