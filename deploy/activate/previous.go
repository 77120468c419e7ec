package activate

import (
	"context"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
)

const (
	// While a nixbench follows a run, it touches a file on the node every second. If this file is older than abandonedAfter, no
	// nixbench follows the run any more. If one still follows the run after observeFor, finishInspected returns a *BusyError.
	abandonedAfter = 5 * time.Second
	observeFor     = 6 * time.Second
)

// FinishPrevious finishes an earlier activation whose nixbench was killed, so that no rollback stays armed on the node. It returns
// the record of this activation, or nil if there was none. If another nixbench still follows it, the error is a *BusyError.
//
// FinishPrevious waits for a switch that still runs. If the run waits for a confirmation and its system is `wanted`, it confirms the
// run, because the client can log in after the switch. For another system, the node rolls back at once. If the node has rebooted
// since, FinishPrevious only closes the run's record. See [Request.CheckHealth] for checkHealth.
func (a *Activator) FinishPrevious(ctx context.Context, node string, h Host, wanted string, checkHealth func(context.Context) error) (*Run, error) {
	n, err := a.Inspect(ctx, node, h, Full)
	if err != nil || !n.HasUnfinishedRun() {
		return nil, err
	}
	return a.finishInspected(ctx, node, h, n, Request{Path: wanted, CheckHealth: checkHealth})
}

// HasUnfinishedRun reports whether the last activation on the node is unfinished. FinishPrevious must then be called before
// another activation.
func (n Node) HasUnfinishedRun() bool {
	return n.Last != nil && (n.Last.Alive || n.Last.phase != "done")
}

// finishInspected is FinishPrevious for a node that was inspected before. r.Path is the wanted system.
func (a *Activator) finishInspected(ctx context.Context, node string, h Host, n Node, r Request) (*Run, error) {
	var err error
	left := event.Event{Node: node, Phase: event.Activate, Text: "the end of run " + n.Last.ID + ", which an earlier nixbench did not finish"}
	if n.Last.Armed > 0 {
		left.Until = time.Now().Add(n.Last.Remaining + computePatience(n.Last.Armed))
	}
	wait := a.Send.Wait(left)
	defer wait.End()
	for begin := time.Now(); n.Last.Alive && n.Last.Seen < abandonedAfter; {
		if time.Since(begin) > observeFor {
			return nil, newBusyError(node, n.Last)
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if n, err = a.inspect(ctx, node, h, r, Full); err != nil {
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
		return n.Last, executeScript(ctx, conn, func(string) {}, "forget", n.Last.ID)
	}
	w := a.newWatch(node, h, n.Last.ID, n.Last.Armed)
	w.checkHealth = r.CheckHealth
	if err := w.follow(ctx, false, "follow", n.Last.ID); err != nil {
		return nil, err
	}
	if run := w.lastRun(); run.path != r.Path && (run.phase == phaseWaiting || run.phase == phaseConfirmed) {
		if err := w.follow(ctx, true, "abort", run.ID); err != nil {
			return nil, err
		}
	}
	if err := w.confirmRun(ctx, nil); err != nil {
		return nil, err
	}
	run := w.lastRun()
	return &run, nil
}
