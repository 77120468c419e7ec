package deploy

import (
	"context"

	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/nixeval"
)

// previewDrains adds to the previews what the drains of apply would delete, and what would block them. If no
// engine answers, it adds nothing.
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

// previewAdjustments adds to the previews what adjustMembers would change. Before the first deployment there
// is no engine to ask.
func (d *Deployer) previewAdjustments(ctx context.Context, hive *nixeval.Hive, previews []Preview) error {
	var nodes []string
	deployed := false
	for _, p := range previews {
		nodes = append(nodes, p.Node)
		deployed = deployed || p.err == nil && p.From != "" && p.Action != plan.WouldFirst
	}
	if !deployed || d.Engines == nil {
		return nil
	}
	engines, err := d.Engines.Of(hive, d.Fleet)
	if err != nil {
		return err
	}
	changes := rollout.PreviewAdjustments(ctx, engines, nodes, d.Send)
	for i, p := range previews {
		previews[i].Adjust = changes[p.Node]
	}
	return nil
}
