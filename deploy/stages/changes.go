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
	compare func(ctx context.Context, node, from, to string) (*packages.SystemDiff, error)

	all       sync.WaitGroup
	comparing sync.Mutex // held during a comparison, which reads all files in /etc of both systems into memory
	mu        sync.Mutex
	byNode    map[string]*packages.NodeDiff
}

// maxChangesWait limits how long the end of a run waits for the comparison.
const maxChangesWait = 10 * time.Second

// newSystemChanges returns a systemChanges that does not compare systems again whose difference the plan contains.
func newSystemChanges(ctx context.Context, r *run) *systemChanges {
	// The copies of the deployment must not wait for the records of these closures, so they have another copier.
	known := newDiffs(&closure.Copier{NixOptions: r.Eval.NixOptions})
	if r.Plan != nil {
		for _, p := range r.Plan.Nodes {
			known.entry(p.From, p.To).diff = p.Diff
		}
	}
	c := &systemChanges{byNode: map[string]*packages.NodeDiff{}}
	c.ctx, c.cancel = context.WithCancel(ctx)
	c.compare = func(ctx context.Context, node, from, to string) (*packages.SystemDiff, error) {
		return known.compare(ctx, node, nil, from, to)
	}
	return c
}

// add begins to compare the system from that a node runs with the node's new system to. If the node was added before, add does
// nothing: the node's machine was recreated, and so runs another system now than before the run.
func (c *systemChanges) add(node, from, to string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if from == "" || from == to || c.byNode[node] != nil {
		return
	}
	one := &packages.NodeDiff{Node: node}
	c.byNode[node] = one
	c.all.Go(func() {
		c.comparing.Lock()
		defer c.comparing.Unlock()
		if c.ctx.Err() == nil {
			one.Diff, _ = c.compare(c.ctx, node, from, to) // a run does not fail because of its record
		}
	})
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
	if err := run.WriteChanges(groups); err != nil {
		return fmt.Errorf("record the changes of systems: %w", err)
	}
	return nil
}

// diffs compares the closures of systems. Many nodes change from one system to the same other system, so each
// difference is computed once.
type diffs struct {
	copier *closure.Copier

	mu        sync.Mutex
	bySystems map[[2]string]*knownDiff
}

func newDiffs(copier *closure.Copier) *diffs {
	return &diffs{copier: copier, bySystems: map[[2]string]*knownDiff{}}
}

// diffTimeout limits how long nixbench asks the Nix daemon of one node. Other nodes with the same pair of systems wait for the
// answer.
const diffTimeout = 20 * time.Second

// knownDiff is a difference between two systems. It is computed when the first node asks for it, and kept for other nodes.
type knownDiff struct {
	mu   sync.Mutex
	diff *packages.SystemDiff
}

// compare returns the difference between from, the system that the node runs, and to, a system in the local store. It returns nil
// if both are the same, if from is empty, or if the closure of from is unknown. If h is nil, the node is not asked, so that from
// must be in the local store, too.
func (d *diffs) compare(ctx context.Context, node string, h closure.Host, from, to string) (*packages.SystemDiff, error) {
	if from == "" || from == to {
		return nil, nil
	}
	known := d.entry(from, to)
	known.mu.Lock()
	defer known.mu.Unlock()
	if known.diff != nil || h == nil && !(durable.Exists(from) && durable.Exists(to)) {
		return known.diff, nil
	}
	if h == nil {
		h = noHost{}
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
	diff := &packages.SystemDiff{Packages: append([]packages.Change{}, packages.Diff(before, after)...), Bytes: packages.Growth(before, after)}
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
	d.mu.Lock()
	defer d.mu.Unlock()
	key := [2]string{from, to}
	if d.bySystems[key] == nil {
		d.bySystems[key] = &knownDiff{}
	}
	return d.bySystems[key]
}

// noHost is the Host of a node to which no request may be sent: each method fails.
type noHost struct{ closure.Host }

func (noHost) Conn(context.Context) (*remote.Conn, error) {
	return nil, errors.New("the closure is not in the local store")
}
