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

// Rebooted is the outcome of a reboot that went well.
const Rebooted state.Outcome = "rebooted"

// RebootOptions say how to reboot.
type RebootOptions struct {
	Parallel       int
	MaxUnavailable plan.Share
	Timeout        time.Duration // until a node must be back
	IfNeeded       bool          // only nodes that would boot another kernel than they have
	WithoutDrain   bool          // nodes of a living cluster keep their work
	Drain          engine.DrainOptions
}

// Reboot reboots nodes that were looked at, and waits until each is back in what its
// profile has. What became of each is in the record of the run.
func (d *Deployer) Reboot(ctx context.Context, looked []Outcome[activate.Node], o RebootOptions) ([]state.NodeResult, error) {
	d.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Deploy, Total: len(looked)})
	var todo []nixeval.Node
	deployed, boots := map[string]bool{}, map[string]string{}
	var results []state.NodeResult
	var errs []error
	for _, l := range looked {
		deployed[l.Node.Name] = l.Err == nil && saysDeployed(l.Value)
		r := state.NodeResult{Node: l.Node.Name, Unit: l.Node.Unit, Path: l.Value.Profile, Outcome: state.Unchanged}
		switch {
		case l.Err != nil:
			r.Outcome = state.Failed
			results, errs = append(results, d.report(r, "", l.Err)), append(errs, l.Err)
		case o.IfNeeded && !l.Value.RebootNeeded():
			results = append(results, d.report(r, "needs no reboot", nil))
		default:
			todo = append(todo, l.Node)
			boots[l.Node.Name] = l.Value.BootID
		}
	}
	rebooted, err := d.amidAll(ctx, todo, func(node string) bool { return deployed[node] }, o.WithoutDrain, o.Drain, o.MaxUnavailable, o.Parallel, func(ctx context.Context, n nixeval.Node) (state.NodeResult, string, error) {
		return d.reboot(ctx, n, boots[n.Name], o.Timeout)
	})
	results, err = append(results, rebooted...), errors.Join(append(errs, err)...)
	d.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Deploy, Total: len(looked), Failed: err != nil, Text: summarize(results)})
	return results, err
}

// reboot writes its intent down before. Killed, it leaves nothing to finish or undo, since the node
// reboots by itself, but the next run has to know that the node is away for a moment.
func (d *Deployer) reboot(ctx context.Context, n nixeval.Node, boot string, timeout time.Duration) (state.NodeResult, string, error) {
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
	if ctx.Err() == nil { // else the next run waits for the node
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

// A reboot that a killed run began may take so long, and is noticed so soon after it was begun.
const (
	longestReboot = 5 * time.Minute
	goesDown      = 15 * time.Second
)

// outlastReboot waits for a node that a killed run has told to reboot. One that is not back in time is
// looked at like any other, which says what is wrong with it.
func (r *run) outlastReboot(ctx context.Context, node string, h activate.Host) error {
	intent := r.Store.State().Rebooting(node)
	if intent == nil {
		return nil
	}
	since := notAfter(intent.Since, time.Now())
	if until := since.Add(longestReboot); time.Now().Before(until) {
		r.Send.Send(event.Event{Kind: event.Message, Level: "note", Node: node, Text: node + ": an earlier run has told it to reboot, and it is waited for"})
		limited, cancel := context.WithDeadline(ctx, until)
		defer cancel()
		_, _ = r.Activator.AwaitBoot(limited, node, h, intent.Path, since.Add(goesDown))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.Fleet.Drop(node) // a connection from before leads nowhere
	}
	return r.Store.Update(func(s *state.State) error { s.Rebooted(node); return nil })
}

// notAfter is since, or now where that is earlier: the clock was set back, or another machine wrote the time.
// It has now's monotonic clock, so a clock that is set during a wait does not prolong it.
func notAfter(since, now time.Time) time.Time { return now.Add(-max(0, now.Sub(since))) }
