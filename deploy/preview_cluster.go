package deploy

import (
	"context"

	"github.com/nixbench/nixbench/deploy/rollout"

	"github.com/nixbench/nixbench/deploy/provision"
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
		machine := provision.Keep
		if p.Machine != nil {
			machine = p.Machine.Action
		}
		canAsk = canAsk || p.From != ""
		switch {
		case machine == provision.Remove, machine == provision.Recreate:
			remove = append(remove, p.Node)
		case machine == provision.Restart, p.Action == WouldSwitch, p.Action == WouldDefault, p.Action == WouldFirst && p.From != "":
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
		deployed = deployed || p.err == nil && p.From != "" && p.Action != WouldFirst
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
