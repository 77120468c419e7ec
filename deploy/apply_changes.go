package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/closure"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/packages"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/state"
)

// systemChanges compares the systems that nodes run with their new systems, beside the deployment. It asks no node: a system that
// is not in the local store is not compared, unless the plan has the difference.
type systemChanges struct {
	in     chan systemChange
	out    chan []packages.NodeDiff
	cancel context.CancelFunc
}

// systemChange is the change of a node's system.
type systemChange struct{ node, from, to string }

// maxChangesWait limits how long the end of a run waits for the comparison.
const maxChangesWait = 10 * time.Second

// startSystemChanges starts the comparison for up to so many calls of add.
func (r *run) startSystemChanges(ctx context.Context, calls int) *systemChanges {
	ctx, cancel := context.WithCancel(ctx)
	c := &systemChanges{in: make(chan systemChange, calls), out: make(chan []packages.NodeDiff, 1), cancel: cancel}
	planned := map[systemChange]*packages.SystemDiff{}
	if r.Plan != nil {
		for _, p := range r.Plan.Nodes {
			planned[systemChange{p.Node, p.From, p.To}] = p.Diff
		}
	}
	// The copies of the deployment must not wait for the records of these closures, so they have another copier.
	known := newDiffs(&closure.Copier{NixOptions: r.Eval.NixOptions})
	go func() {
		defer cancel()
		var all []packages.NodeDiff
		seen := map[string]bool{}
		for change := range c.in {
			if seen[change.node] {
				continue // its machine was recreated, and now has another system than before the run
			}
			seen[change.node] = true
			diff := planned[change]
			if diff == nil && durable.Exists(change.from) && durable.Exists(change.to) {
				diff, _ = known.compare(ctx, change.node, noHost{}, change.from, change.to) // a run does not fail because of its record
			}
			all = append(all, packages.NodeDiff{Node: change.node, Diff: diff})
		}
		c.out <- all
	}()
	return c
}

// add adds the change of a node's system. It does not wait.
func (c *systemChanges) add(node, from, to string) {
	if from == "" || from == to {
		return
	}
	select {
	case c.in <- systemChange{node, from, to}:
	default: // all nodes were added before
	}
}

// recordSystemChanges waits for the comparison and writes the differences to the run's record, for the nodes that run or boot another system
// because of this run.
func (r *run) recordSystemChanges(results []rollout.Result) error {
	changed := map[string]bool{}
	for _, result := range results {
		if a := result.Activation; a != nil && a.After.Current != "" && result.Outcome != state.RolledBack {
			changed[result.Node.Name] = a.After.Current != a.Before.Current || a.After.Profile != a.Before.Profile
		}
	}
	close(r.changes.in)
	defer time.AfterFunc(maxChangesWait, r.changes.cancel).Stop()
	diffs := slices.DeleteFunc(<-r.changes.out, func(d packages.NodeDiff) bool { return !changed[d.Node] })
	groups := packages.GroupNodes(diffs)
	if len(groups) == 0 {
		return nil
	}
	if err := r.Record.Changes(groups); err != nil {
		return fmt.Errorf("record the changes of systems: %w", err)
	}
	return nil
}

// noHost is a node that is not asked.
type noHost struct{ closure.Host }

func (noHost) Conn(context.Context) (*remote.Conn, error) {
	return nil, errors.New("the closure is not in the local store")
}
