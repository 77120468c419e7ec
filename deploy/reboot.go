package deploy

import (
	"context"
	"errors"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// RebootOptions are the options of Reboot.
type RebootOptions struct {
	Parallel       int
	MaxUnavailable selection.Share
	Timeout        time.Duration // maximum time until a node has booted
	IfNeeded       bool          // reboot only nodes that would boot another kernel than the running one
	WithoutDrain   bool          // reboot members of a running cluster without draining them
	Drain          engine.DrainOptions
}

// Reboot reboots inspected nodes, and waits until each node has booted the system of its profile. The record of
// the run contains the result of each node.
func (d *Deployer) Reboot(ctx context.Context, inspected []fleet.Outcome[activate.Node], o RebootOptions) ([]state.NodeResult, error) {
	d.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Deploy, Total: len(inspected)})
	var todo []nixeval.Node
	reports, boots := map[string]rollout.Report{}, map[string]string{}
	var results []state.NodeResult
	var errs []error
	for _, l := range inspected {
		if l.Err == nil {
			reports[l.Node.Name] = newReport(l.Value)
		}
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
	rebooted, err := d.rollingUpdate(ctx, todo, func(node string) rollout.Report { return reports[node] }, o.WithoutDrain, o.Drain, o.MaxUnavailable, o.Parallel, func(ctx context.Context, n nixeval.Node) (state.NodeResult, string, error) {
		return d.nodeChanger().Reboot(ctx, n, boots[n.Name], o.Timeout)
	})
	results, err = append(results, rebooted...), errors.Join(append(errs, err)...)
	d.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Deploy, Total: len(inspected), Failed: err != nil, Text: formatResultCounts(results)})
	return results, err
}
