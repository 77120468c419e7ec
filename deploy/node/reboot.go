package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Rebooted is the outcome of a successful reboot.
const Rebooted state.Outcome = "rebooted"

// Reboot writes its intent to the state, and then reboots the node. A killed run leaves nothing to
// finish or undo, because the node reboots by itself. The intent makes the next run wait for the node.
func (c *Changer) Reboot(ctx context.Context, n nixeval.Node, boot string, timeout time.Duration) (state.NodeResult, string, error) {
	r := state.NodeResult{Node: n.Name, Unit: n.Unit, Outcome: state.Failed}
	h, err := c.Fleet.Host(ctx, n)
	if err != nil {
		return r, "", err
	}
	c.Send.Send(event.Event{Kind: event.NodeStart, Phase: event.Activate, Node: n.Name, Text: "waits for the node to come back"})
	begin := time.Now()
	intent := state.Intent{Run: c.RunID, Node: n.Name, Step: state.RebootNode, Path: boot, Since: begin.UTC()}
	if err := c.Store.Begin(intent); err != nil {
		return r, "", &fleet.NodeError{Node: n.Name, Step: event.Activate, Err: err}
	}
	after, err := c.Activator.Reboot(ctx, n.Name, h, timeout)
	if ctx.Err() == nil { // otherwise the intent stays and the next run waits for the node
		err = errors.Join(err, c.Store.Update(func(s *state.State) error { s.Rebooted(n.Name); return nil }))
	}
	c.Send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Activate, Node: n.Name, Failed: err != nil})
	r.Path, r.After = after.Booted, GenerationOf(after, after.Booted)
	if err != nil {
		return r, "", &fleet.NodeError{Node: n.Name, Step: event.Activate, Err: err}
	}
	r.Outcome = Rebooted
	text := fmt.Sprintf("back after %s", time.Since(begin).Round(100*time.Millisecond))
	if r.After != 0 {
		text += fmt.Sprintf(", in generation %d", r.After)
	}
	if len(after.Failed) > 0 {
		text += fmt.Sprintf("; %s failed", fleet.Count(len(after.Failed), "unit"))
	}
	return r, text, nil
}

// Limits for a reboot that a killed run began: maxRebootTime until the node is back, shutdownGrace
// until its old system has gone down.
const (
	maxRebootTime = 5 * time.Minute
	shutdownGrace = 15 * time.Second
)

// waitForPreviousReboot waits for a node that a killed run has told to reboot. A node that is not back
// in time is inspected like any other node, and the inspection reports what is wrong.
func (c *Changer) waitForPreviousReboot(ctx context.Context, node string, h activate.Host) error {
	intent := c.Store.State().Rebooting(node)
	if intent == nil {
		return nil
	}
	since := clampToNow(intent.Since, time.Now())
	if until := since.Add(maxRebootTime); time.Now().Before(until) {
		c.Send.Send(event.Event{Kind: event.Message, Level: "note", Node: node, Text: node + ": an earlier run has requested its reboot; this run waits for it"})
		limited, cancel := context.WithDeadline(ctx, until)
		defer cancel()
		_, _ = c.Activator.WaitForBoot(limited, node, h, intent.Path, since.Add(shutdownGrace))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c.Fleet.Drop(node) // an old connection is to the system before the reboot
	}
	return c.Store.Update(func(s *state.State) error { s.Rebooted(node); return nil })
}

// clampToNow is since, or now where that is earlier: the clock was set back, or another machine wrote the time.
// It has now's monotonic clock, so a clock that is set during a wait does not prolong it.
func clampToNow(since, now time.Time) time.Time { return now.Add(-max(0, now.Sub(since))) }
