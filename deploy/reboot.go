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
	deployed := map[string]bool{}
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
		}
	}
	rebooted, err := d.amidAll(ctx, todo, func(node string) bool { return deployed[node] }, o.WithoutDrain, o.Drain, o.MaxUnavailable, o.Parallel, func(ctx context.Context, n nixeval.Node) (state.NodeResult, string, error) {
		return d.reboot(ctx, n, o.Timeout)
	})
	results, err = append(results, rebooted...), errors.Join(append(errs, err)...)
	d.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Deploy, Total: len(looked), Failed: err != nil, Text: countOutcomes(results)})
	return results, err
}

// reboot writes no intent: killed, we leave nothing that the next run would have to
// finish or undo. The node reboots by itself, and says by itself what it booted.
func (d *Deployer) reboot(ctx context.Context, n nixeval.Node, timeout time.Duration) (state.NodeResult, string, error) {
	r := state.NodeResult{Node: n.Name, Unit: n.Unit, Outcome: state.Failed}
	h, err := d.Fleet.Host(ctx, n)
	if err != nil {
		return r, "", err
	}
	d.Send.Send(event.Event{Kind: event.NodeStart, Phase: event.Activate, Node: n.Name, Text: "waits for the node to come back"})
	begin := time.Now()
	after, err := d.Activator.Reboot(ctx, n.Name, h, timeout)
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
