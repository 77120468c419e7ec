package deploy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Rebooted is the outcome of a successful reboot.
const Rebooted state.Outcome = "rebooted"

// RebootOptions say how to reboot.
type RebootOptions struct {
	Parallel       int
	MaxUnavailable plan.Share
	Timeout        time.Duration // how long a node may take to come back
	IfNeeded       bool          // only nodes that would boot another kernel than they run
	WithoutDrain   bool          // reboot members of a running cluster without draining them
	Drain          engine.DrainOptions
}

// Reboot reboots inspected nodes, and waits until each one has booted the system of its
// profile. The record of the run contains the result of each node.
func (d *Deployer) Reboot(ctx context.Context, inspected []Outcome[activate.Node], o RebootOptions) ([]state.NodeResult, error) {
	d.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Deploy, Total: len(inspected)})
	var todo []nixeval.Node
	deployed, boots := map[string]bool{}, map[string]string{}
	var results []state.NodeResult
	var errs []error
	for _, l := range inspected {
		deployed[l.Node.Name] = l.Err == nil && hasDeployment(l.Value)
		r := state.NodeResult{Node: l.Node.Name, Unit: l.Node.Unit, Path: l.Value.Profile, Outcome: state.Unchanged}
		switch {
		case l.Err != nil:
			r.Outcome = state.Failed
			results, errs = append(results, d.reportResult(r, "", l.Err)), append(errs, l.Err)
		case o.IfNeeded && !l.Value.RebootNeeded():
			results = append(results, d.reportResult(r, "needs no reboot", nil))
		default:
			todo = append(todo, l.Node)
			boots[l.Node.Name] = l.Value.BootID
		}
	}
	rebooted, err := d.rollingUpdate(ctx, todo, func(node string) bool { return deployed[node] }, o.WithoutDrain, o.Drain, o.MaxUnavailable, o.Parallel, func(ctx context.Context, n nixeval.Node) (state.NodeResult, string, error) {
		return d.rebootNode(ctx, n, boots[n.Name], o.Timeout)
	})
	results, err = append(results, rebooted...), errors.Join(append(errs, err)...)
	d.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Deploy, Total: len(inspected), Failed: err != nil, Text: summarize(results)})
	return results, err
}

// rebootNode writes its intent to the state, and then reboots the node. A killed run leaves nothing to
// finish or undo, because the node reboots by itself. The intent makes the next run wait for the node.
func (d *Deployer) rebootNode(ctx context.Context, n nixeval.Node, boot string, timeout time.Duration) (state.NodeResult, string, error) {
	r := state.NodeResult{Node: n.Name, Unit: n.Unit, Outcome: state.Failed}
	h, err := d.Fleet.Host(ctx, n)
	if err != nil {
		return r, "", err
	}
	d.Send.Send(event.Event{Kind: event.NodeStart, Phase: event.Activate, Node: n.Name, Text: "waits for the node to come back"})
	begin := time.Now()
	intent := state.Intent{Run: d.Record.ID(), Node: n.Name, Step: state.RebootNode, Path: boot, Since: begin.UTC()}
	if err := d.Store.Begin(intent); err != nil {
		return r, "", &NodeError{Node: n.Name, Step: event.Activate, Err: err}
	}
	after, err := d.Activator.Reboot(ctx, n.Name, h, timeout)
	if ctx.Err() == nil { // otherwise the intent stays and the next run waits for the node
		err = errors.Join(err, d.Store.Update(func(s *state.State) error { s.Rebooted(n.Name); return nil }))
	}
	d.Send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Activate, Node: n.Name, Failed: err != nil})
	r.Path, r.After = after.Booted, generationOf(after, after.Booted)
	if err != nil {
		return r, "", &NodeError{Node: n.Name, Step: event.Activate, Err: err}
	}
	r.Outcome = Rebooted
	text := fmt.Sprintf("back after %s", time.Since(begin).Round(100*time.Millisecond))
	if r.After != 0 {
		text += fmt.Sprintf(", in generation %d", r.After)
	}
	if len(after.Failed) > 0 {
		text += fmt.Sprintf("; %s failed", Count(len(after.Failed), "unit"))
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
func (r *run) waitForPreviousReboot(ctx context.Context, node string, h activate.Host) error {
	intent := r.Store.State().Rebooting(node)
	if intent == nil {
		return nil
	}
	since := notAfter(intent.Since, time.Now())
	if until := since.Add(maxRebootTime); time.Now().Before(until) {
		r.Send.Send(event.Event{Kind: event.Message, Level: "note", Node: node, Text: node + ": an earlier run has requested its reboot; this run waits for it"})
		limited, cancel := context.WithDeadline(ctx, until)
		defer cancel()
		_, _ = r.Activator.WaitForBoot(limited, node, h, intent.Path, since.Add(shutdownGrace))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.Fleet.Drop(node) // an old connection is to the system before the reboot
	}
	return r.Store.Update(func(s *state.State) error { s.Rebooted(node); return nil })
}

// notAfter is since, or now where that is earlier: the clock was set back, or another machine wrote the time.
// It has now's monotonic clock, so a clock that is set during a wait does not prolong it.
func notAfter(since, now time.Time) time.Time { return now.Add(-max(0, now.Sub(since))) }
