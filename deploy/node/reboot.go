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

// Reboot writes an intent to the state, reboots the node, and waits for at most timeout until the node has booted. boot is the
// boot id before the reboot. If the run is killed, the intent makes the next run wait for the node, and nothing
// else, because the node reboots by itself.
func (c *Changer) Reboot(ctx context.Context, n nixeval.Node, boot string, timeout time.Duration) (after activate.Node, text string, err error) {
	h, err := c.Fleet.Host(ctx, n)
	if err != nil {
		return after, "", err
	}
	c.Send.Send(event.Event{Kind: event.NodeStart, Phase: event.Activate, Node: n.Name, Text: "waits for the node to come back"})
	begin := time.Now()
	intent := state.Intent{Run: c.RunID, Node: n.Name, Step: state.RebootNode, Path: boot, Since: begin.UTC()}
	if err := c.Store.Begin(intent); err != nil {
		return after, "", fleet.NewNodeError(n.Name, event.Activate, err)
	}
	after, err = c.Activator.Reboot(ctx, n.Name, h, timeout)
	if ctx.Err() == nil { // if ctx has ended, the intent stays, and the next run waits for the node
		err = errors.Join(err, c.Store.Update(func(s *state.State) error { s.DropIntents(n.Name, state.RebootNode); return nil }))
	}
	c.Send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Activate, Node: n.Name, Failed: err != nil})
	if err != nil {
		return after, "", fleet.NewNodeError(n.Name, event.Activate, err)
	}
	c.Fleet.Drop(n.Name) // close the connection to the system that ran before the reboot
	text = fmt.Sprintf("back after %s", time.Since(begin).Round(100*time.Millisecond))
	if generation := after.GenerationOf(after.Booted); generation != 0 {
		text += fmt.Sprintf(", in generation %d", generation)
	}
	if len(after.Failed) > 0 {
		text += fmt.Sprintf("; %s failed", event.Count(len(after.Failed), "unit"))
	}
	return after, text, nil
}

// Time limits for a reboot that a run has requested before it was killed. maxRebootTime is the time until the node has booted;
// shutdownGrace is the time until the old system has shut down.
const (
	maxRebootTime = 5 * time.Minute
	shutdownGrace = 15 * time.Second
)

// waitForPreviousReboot waits until a node has booted, if an earlier run has requested a reboot of the node and was then killed.
// Afterwards it removes the intent of that run to reboot the node from the state. If the node does not boot in time, it returns no
// error, because the next inspection of the node reports the problem.
func (c *Changer) waitForPreviousReboot(ctx context.Context, node string, h activate.Host) error {
	intent := c.Store.State().LastIntent(node, state.RebootNode)
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
		c.Fleet.Drop(node) // close the connection to the system that ran before the reboot
	}
	return c.Store.Update(func(s *state.State) error { s.DropIntents(node, state.RebootNode); return nil })
}

// clampToNow returns since. It returns now if since is in the future, because the clock was set back, or because another computer
// with another clock wrote the time. The result contains the monotonic clock of now, so that a wait is not longer if the clock is
// set meanwhile.
func clampToNow(since, now time.Time) time.Time { return now.Add(-max(0, now.Sub(since))) }
