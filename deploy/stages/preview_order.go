package stages

import (
	"context"
	"slices"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/state"
)

// addOrder completes the preview of each node that would change: its wave, whether it would be drained, and what the drain would
// delete. removed are the nodes whose machines would be removed at the end of the run.
func (r previewer) addOrder(ctx context.Context, observed map[string]fleet.Outcome[activate.Node], previews []Preview, removed []string) error {
	changes, canAsk := len(removed) > 0, false
	var nodes []plan.Node
	byName := map[string]*Preview{}
	for i := range previews {
		p := &previews[i]
		changes = changes || p.isInWave()
		canAsk = canAsk || p.From != ""
		if p.Action != plan.WouldRemove {
			nodes, byName[p.Node] = append(nodes, p.plan), p
		}
	}
	if !changes {
		return nil
	}
	cluster := rollout.NewCluster(nil, r.Send)
	if canAsk && r.Engines != nil {
		report := func(name string) rollout.Report {
			if one, ok := observed[name]; ok && one.Err == nil {
				return newReport(one.Value)
			}
			return rollout.Report{}
		}
		var err error
		observer := rollout.Observer{Engines: r.Engines, Fleet: r.Fleet, Hive: r.hive, Store: state.ReadOnly(r.recorded), Report: report, Drain: r.Drain, Send: r.Send}
		if cluster, err = observer.Observe(ctx); err != nil {
			return err
		}
	}
	decided := plan.Decide(nodes, removed, cluster.Observed(), r.Options.Options)
	number := 0
	for _, wave := range decided.Waves {
		wave = slices.DeleteFunc(wave, func(n plan.Node) bool { return !byName[n.Node.Name].isInWave() })
		if len(wave) > 0 {
			number++
		}
		for _, n := range wave {
			p := byName[n.Node.Name]
			p.Wave, p.Drained = number, n.Drain && cluster.IsMember(p.Node) && !cluster.IsUnreachable(p.Node)
		}
	}
	checks, err := cluster.CheckDrains(ctx, decided.Drains.Change, decided.Drains.Remove)
	for i, p := range previews {
		if check, ok := checks[p.Node]; ok {
			previews[i].Drain = &check
		}
	}
	return err
}

// addAdjustments adds to each preview the changes of member settings (such as labels) that [rollout.Cluster.Verify] would make.
// Before the first deployment it adds nothing, because no engine runs yet. unknown is the reason why an engine does not answer, or
// nil.
func (r previewer) addAdjustments(ctx context.Context, previews []Preview) (unknown, _ error) {
	var nodes []string
	deployed := false
	for _, p := range previews {
		nodes = append(nodes, p.Node)
		deployed = deployed || p.err == nil && p.From != "" && p.Action != plan.WouldFirst
	}
	if !deployed || r.Engines == nil {
		return nil, nil
	}
	engines, err := r.Engines.Of(r.hive, r.Fleet)
	if err != nil {
		return nil, err
	}
	if _, unknown := inspect.Members(ctx, engines); unknown != nil {
		r.warn("", unknown)
		return unknown, nil
	}
	changes := rollout.PreviewAdjustments(ctx, engines, nodes, r.Send)
	for i, p := range previews {
		previews[i].Adjust = changes[p.Node]
	}
	return nil, nil
}

// isInWave reports whether apply would change the node in one of its waves.
func (p Preview) isInWave() bool {
	return slices.Contains([]string{plan.WouldKeys, plan.WouldDefault, plan.WouldSwitch, plan.WouldFirst, plan.NotRunning}, p.Action) || p.plan.Restarts()
}

// Changes reports whether Apply would change a node, a machine or a member of the cluster.
func (p Plan) Changes() bool {
	return slices.ContainsFunc(p.Nodes, func(n Preview) bool {
		machineChanges := n.Machine != nil && n.Machine.Action != changes.Keep
		return n.Action != plan.WouldNothing || machineChanges || n.Version != nil || len(n.Adjust) > 0
	})
}
