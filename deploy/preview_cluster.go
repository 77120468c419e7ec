package deploy

import (
	"context"

	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/nixeval"
)

// previewDrains adds to each preview the data that the node's drain would delete and the workloads that would
// block the drain. It adds nothing for an engine that does not answer.
func (d *Deployer) previewDrains(ctx context.Context, hive *nixeval.Hive, previews []Preview, o PreviewOptions) error {
	if o.WithoutDrain || d.Engines == nil {
		return nil
	}
	var change, remove []string
	canAsk := false
	for _, p := range previews {
		canAsk = canAsk || p.From != ""
		switch {
		case p.plan.Removes():
			remove = append(remove, p.Node)
		case p.plan.NeedsDrain(node.Switch):
			change = append(change, p.Node)
		}
	}
	if !canAsk {
		return nil
	}
	engines, err := d.Engines.Of(hive, d.Fleet)
	if err != nil {
		return err
	}
	checks, err := rollout.PreviewDrains(ctx, engines, change, remove, o.Drain, d.Send)
	for i, p := range previews {
		if check, ok := checks[p.Node]; ok {
			previews[i].Drain = &check
		}
	}
	return err
}

// previewAdjustments adds to each preview the changes that [rollout.Cluster.AdjustMembers] would make. It adds
// nothing before the first deployment, because no engine runs yet. unknown is why an engine does not answer, or nil.
func (d *Deployer) previewAdjustments(ctx context.Context, hive *nixeval.Hive, previews []Preview) (unknown, _ error) {
	var nodes []string
	deployed := false
	for _, p := range previews {
		nodes = append(nodes, p.Node)
		deployed = deployed || p.err == nil && p.From != "" && p.Action != plan.WouldFirst
	}
	if !deployed || d.Engines == nil {
		return nil, nil
	}
	engines, err := d.Engines.Of(hive, d.Fleet)
	if err != nil {
		return nil, err
	}
	if _, unknown := inspect.Members(ctx, engines); unknown != nil {
		d.warn("", unknown)
		return unknown, nil
	}
	changes := rollout.PreviewAdjustments(ctx, engines, nodes, d.Send)
	for i, p := range previews {
		previews[i].Adjust = changes[p.Node]
	}
	return nil, nil
}
