package stages

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nixbench/nixbench/deploy/closure"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/packages"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
)

// systemChanges compares the system that each node runs with the node's new system, while the deployment goes on. It sends no
// request to a node. If one of the two systems is not in the local store, the difference must come from the plan, or is left out.
type systemChanges struct {
	ctx     context.Context
	cancel  context.CancelFunc
	compare func(ctx context.Context, c systemChange) (*packages.SystemDiff, error)
	planned map[systemChange]*packages.SystemDiff

	all       sync.WaitGroup
	comparing sync.Mutex // held during a comparison, which reads all files in /etc of both systems into memory
	mu        sync.Mutex
	byNode    map[string]*packages.NodeDiff
}

// systemChange is the change of a node's system.
type systemChange struct{ node, from, to string }

// maxChangesWait limits how long the end of a run waits for the comparison.
const maxChangesWait = 10 * time.Second

// newSystemChanges returns the systemChanges of a deployment. They contain the differences that the plan has computed already.
func newSystemChanges(ctx context.Context, d deployment) *systemChanges {
	// The copies of the deployment must not wait for the records of these closures, so they have another copier.
	known := newDiffs(&closure.Copier{NixOptions: d.Eval.NixOptions})
	c := &systemChanges{planned: map[systemChange]*packages.SystemDiff{}, byNode: map[string]*packages.NodeDiff{}}
	c.compare = func(ctx context.Context, c systemChange) (*packages.SystemDiff, error) {
		return known.compare(ctx, c.node, noHost{}, c.from, c.to)
	}
	c.ctx, c.cancel = context.WithCancel(ctx)
	if d.Plan != nil {
		for _, p := range d.Plan.Nodes {
			c.planned[systemChange{p.Node, p.From, p.To}] = p.Diff
		}
	}
	return c
}

// add begins to compare the system that a node runs with the node's new system. If the node was added before, add does nothing:
// the node's machine was recreated, and so runs another system now than before the run.
func (c *systemChanges) add(change systemChange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if change.from == "" || change.from == change.to || c.byNode[change.node] != nil {
		return
	}
	one := &packages.NodeDiff{Node: change.node, Diff: c.planned[change]}
	c.byNode[change.node] = one
	if one.Diff == nil && durable.Exists(change.from) && durable.Exists(change.to) {
		c.all.Go(func() {
			c.comparing.Lock()
			defer c.comparing.Unlock()
			if c.ctx.Err() == nil {
				one.Diff, _ = c.compare(c.ctx, change) // a run does not fail because of its record
			}
		})
	}
}

// record waits for the comparisons. It writes the differences to the run's record, for those nodes that run or boot another system
// because of this run.
func (c *systemChanges) record(run *runs.Recorder, results []rollout.Result) error {
	defer c.cancel()
	defer time.AfterFunc(maxChangesWait, c.cancel).Stop()
	c.all.Wait()
	var diffs []packages.NodeDiff
	for _, result := range results {
		one, a := c.byNode[result.Node.Name], result.Activation
		if one != nil && a != nil && a.After.Current != "" && result.Outcome != state.RolledBack &&
			(a.After.Current != a.Before.Current || a.After.Profile != a.Before.Profile) {
			diffs = append(diffs, *one)
		}
	}
	groups := packages.GroupNodes(diffs)
	if len(groups) == 0 {
		return nil
	}
	if err := run.Changes(groups); err != nil {
		return fmt.Errorf("record the changes of systems: %w", err)
	}
	return nil
}

// noHost is the Host of a node to which no request may be sent: each method fails.
type noHost struct{ closure.Host }

func (noHost) Conn(context.Context) (*remote.Conn, error) {
	return nil, errors.New("the closure is not in the local store")
}
