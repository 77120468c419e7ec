package deploy

import (
	"context"
	"slices"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// previewWaves adds to the preview of each node that would change its wave, and whether it would be drained. The order is that
// of [run.runDeployPhase].
func (d *Deployer) previewWaves(ctx context.Context, hive *nixeval.Hive, nodes []nixeval.Node, recorded *state.State, inspected map[string]fleet.Outcome[activate.Node], previews []Preview, o PreviewOptions) error {
	byName := map[string]*Preview{}
	changes, canAsk := false, false
	for i := range previews {
		p := &previews[i]
		byName[p.Node] = p
		changes = changes || p.isInWave()
		canAsk = canAsk || p.From != ""
	}
	if !changes {
		return nil
	}
	cluster := rollout.NewCluster(nil, d.Send)
	if canAsk && d.Engines != nil {
		var err error
		cluster, err = rollout.Observe(ctx, d.Engines, d.Fleet, hive, state.ReadOnly(recorded), func(name string) rollout.Report {
			if one, ok := inspected[name]; ok && one.Err == nil {
				return newReport(one.Value)
			}
			return rollout.Report{}
		}, false, o.Drain, d.Send)
		if err != nil {
			return err
		}
	}
	todo := slices.DeleteFunc(slices.Clone(nodes), func(n nixeval.Node) bool { return !byName[n.Name].isInWave() })
	waves := [][]nixeval.Node{todo}
	if o.MaxUnavailable.Of(len(nodes)) < len(nodes) || cluster.Running() || cluster.HasLeaving() {
		waves = cluster.OrderWaves(nodes, func(name string) bool { return byName[name].plan.IsNoop() }, o.MaxUnavailable)
	}
	number := 0
	for _, wave := range waves {
		if !slices.ContainsFunc(wave, func(n nixeval.Node) bool { return byName[n.Name].isInWave() }) {
			continue
		}
		number++
		for _, n := range wave {
			if p := byName[n.Name]; p.isInWave() {
				p.Wave = number
				p.Drained = !o.WithoutDrain && cluster.IsMember(n.Name) && !cluster.IsUnreachable(n.Name) && (p.plan.NeedsDrain(node.Switch) || p.plan.Removes())
			}
		}
	}
	return nil
}

// isInWave reports whether apply would change the node in one of its waves.
func (p Preview) isInWave() bool {
	return slices.Contains([]string{plan.WouldKeys, plan.WouldDefault, plan.WouldSwitch, plan.WouldFirst, plan.NotRunning}, p.Action) || p.plan.Restarts()
}

// Changes reports whether Apply would change a node, a machine or a member of the cluster.
func (p Plan) Changes() bool {
	return slices.ContainsFunc(p.Nodes, func(n Preview) bool {
		machineChanges := n.Machine != nil && n.Machine.Action != machine.Keep
		return n.Action != plan.WouldNothing || machineChanges || n.Version != nil || len(n.Adjust) > 0
	})
}
