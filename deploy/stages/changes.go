package stages

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nixbench/nixbench/deploy/closure"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/packages"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/state"
)

// maxChangesTime limits how long the end of a run compares systems.
const maxChangesTime = 10 * time.Second

// recordChanges writes to the run's record how the systems differ of those nodes that run or boot another system because of this
// run. It sends no request to a node. If one of the two systems is not in the local store, the difference must come from the plan,
// or is left out.
func (r *run) recordChanges(ctx context.Context, prepared *preparations, results []rollout.Result) error {
	ctx, cancel := context.WithTimeout(ctx, maxChangesTime)
	defer cancel()
	known := &diffs{copier: r.Copier}
	if r.Plan != nil {
		for _, p := range r.Plan.Nodes {
			known.entry(p.From, p.To).diff = p.Diff
		}
	}
	var groups []packages.Group
	for _, result := range results {
		name, a := result.Node.Name, result.Activation
		if a == nil || a.After.Current == "" || result.Outcome == state.RolledBack || a.After.Current == a.Before.Current && a.After.Profile == a.Before.Profile {
			continue
		}
		// Activation.Before is not the system before the run if the node's machine was recreated.
		if from, to := prepared.byNode[name].observed.Current, result.Task.Closure.Out; from != "" && from != to {
			diff, _ := known.compare(ctx, name, nil, from, to) // a run does not fail because of its record
			groups = packages.AddNode(groups, name, diff)
		}
	}
	if len(groups) == 0 {
		return nil
	}
	if err := r.Record.WriteFile("changes.json", groups); err != nil {
		return fmt.Errorf("record the changes of systems: %w", err)
	}
	return nil
}

// diffs compares the closures of systems: once for all nodes that change from one system to the same other one.
type diffs struct {
	copier    *closure.Copier
	bySystems sync.Map // two systems → *knownDiff
}

// diffTimeout limits how long the Nix daemon of one node is asked, while other nodes with the same systems wait for the answer.
const diffTimeout = 20 * time.Second

// knownDiff is a difference between two systems. It is computed when the first node asks for it, and kept for other nodes.
type knownDiff struct {
	mu   sync.Mutex
	diff *packages.SystemDiff
}

// compare returns the difference between from, the system that the node runs, and to, a system in the local store. It returns nil
// if both are the same, if from is empty, or if the closure of from is unknown. If h is nil, the node is not asked.
func (d *diffs) compare(ctx context.Context, node string, h remote.Connector, from, to string) (*packages.SystemDiff, error) {
	if from == "" || from == to {
		return nil, nil
	}
	known := d.entry(from, to)
	known.mu.Lock()
	defer known.mu.Unlock()
	if known.diff != nil {
		return known.diff, nil
	}
	ctx, cancel := context.WithTimeout(ctx, diffTimeout)
	defer cancel()
	before, err := d.copier.Sizes(ctx, node, h, from)
	if err != nil || before == nil {
		return nil, err
	}
	after, err := d.copier.Sizes(ctx, node, h, to)
	if err != nil || after == nil {
		return nil, err
	}
	diff := packages.Diff(before, after)
	if durable.Exists(from) {
		units, etc, err := packages.DiffConfig(from, to)
		if err != nil {
			return nil, err
		}
		diff.Units, diff.Etc = &units, &etc
	}
	known.diff = diff
	return diff, nil
}

func (d *diffs) entry(from, to string) *knownDiff {
	known, _ := d.bySystems.LoadOrStore([2]string{from, to}, &knownDiff{})
	return known.(*knownDiff)
}
