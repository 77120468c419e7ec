package stages

import (
	"context"
	"sync"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// preparation is what happens before a node is changed: its machine becomes ready, the node is inspected, and its system is copied
// to it.
type preparation struct {
	inspected chan struct{}
	observed  activate.Node // valid, as err, once inspected is closed
	err       error
	ready     chan struct{}
	copied    string // the system that was copied; valid once ready is closed
}

// preparations are the preparations of all nodes of a run.
type preparations struct {
	byNode     map[string]*preparation
	stopCopies func()
	running    sync.WaitGroup
}

// prepareNodes starts a goroutine for each node and returns at once. The goroutine waits only for the machine and the system of
// its own node, so a system is copied while other systems are still evaluated and built. A copy changes nothing that runs. If the
// run fails afterwards, the copied paths stay on the node, so that the next run does not copy them again: a garbage collector root
// in /run protects them until the next boot. If a copy fails, the deployment of the node copies again, and reports the error.
func (r *run) prepareNodes(ctx context.Context) *preparations {
	copyCtx, stopCopies := context.WithCancel(ctx)
	all := &preparations{byNode: map[string]*preparation{}, stopCopies: stopCopies}
	inspections := rollout.NewSlots(r.Parallel)
	for _, n := range r.nodes {
		p := &preparation{inspected: make(chan struct{}), ready: make(chan struct{})}
		all.byNode[n.Name] = p
		all.running.Go(func() {
			defer close(p.ready)
			p.err = failure.Recover(func() (err error) {
				p.observed, err = r.inspectWhenReady(ctx, n, inspections)
				return err
			})
			close(p.inspected)
			if p.err == nil {
				_ = failure.Recover(func() error { p.copied = r.copySystem(copyCtx, n, p); return nil })
			}
		})
	}
	return all
}

// inspectWhenReady waits until the node's machine is ready, and inspects the node. If only keys are uploaded, it only connects to
// the node.
func (r *run) inspectWhenReady(ctx context.Context, n nixeval.Node, slots rollout.Slots) (activate.Node, error) {
	if ready := r.machines.ReadyChannel(n.Name); ready != nil {
		select {
		case <-ready:
		case <-ctx.Done():
		}
	}
	defer slots.Enter()()
	if ctx.Err() != nil { // the run was cancelled before the inspection started
		return activate.Node{}, context.Cause(ctx)
	}
	if err := r.machines.WaitReady(n.Name); err != nil {
		return activate.Node{}, err
	}
	switch {
	case r.Goal == node.UploadKeys: // does not depend on the node's systems
		return activate.Node{}, r.nodeChanger().Connect(ctx, n)
	case r.mayHaveEngine():
		return r.nodeChanger().Inspect(ctx, n)
	}
	return r.nodeChanger().InspectSystems(ctx, n)
}

// mayHaveEngine reports whether an engine may check the health of the nodes after the run. Such a check compares the failed
// systemd units after the run with those in the inspection.
func (d deployment) mayHaveEngine() bool {
	if len(d.hive.Broken) > 0 {
		return true
	}
	for _, u := range d.hive.Units {
		if u.Deployment.Engine != nil {
			return true
		}
	}
	for _, n := range d.Store.State().Nodes {
		if n.Engine != "" {
			return true
		}
	}
	return false
}

// copySystem waits until the system of an inspected node is built, copies the system to the node, and returns its path. It returns
// an empty string if no copy is needed or the copy fails.
func (r *run) copySystem(ctx context.Context, n nixeval.Node, p *preparation) string {
	c, evaluated := r.systems.waitEvaluated(ctx, n.Unit)
	if !evaluated || r.systems.buildsOnTarget(n.Unit) {
		return ""
	}
	decided, err := r.decide(n, c, true, p)
	if err != nil || !decided.Copy || !r.systems.waitBuilt(ctx, n.Unit) {
		return ""
	}
	defer r.slots.Enter()()
	if ctx.Err() != nil || r.nodeChanger().Transfer(ctx, node.Task{Node: n, Closure: c}, r.nodeOptions()) != nil {
		return ""
	}
	return c.Out
}

// stop cancels the copies, and waits until all goroutines have ended.
func (l *preparations) stop() {
	l.stopCopies()
	l.running.Wait()
}

func (l *preparations) waitInspected() {
	for _, p := range l.byNode {
		<-p.inspected
	}
}

// ready returns, for each node, a channel. The channel is closed when the preparation of the node has ended.
func (l *preparations) ready() map[string]<-chan struct{} {
	out := map[string]<-chan struct{}{}
	for name, p := range l.byNode {
		out[name] = p.ready
	}
	return out
}

// report returns what a node has reported in its inspection. It is empty until the inspection has ended. Unlike the state, the
// report also shows a deployment that was made from another computer.
func (l *preparations) report(name string) rollout.Report {
	if p := l.byNode[name]; p != nil && isClosed(p.inspected) && p.err == nil {
		return newReport(p.observed)
	}
	return rollout.Report{}
}

// wasRecreated reports whether the machine of a node was recreated and the node has not been deployed since. It returns true only
// if neither the state nor the node has a deployment, because the engine then removes the node's old member.
func (l *preparations) wasRecreated(node string, recorded *state.State) bool {
	p := l.byNode[node]
	if _, ours := recorded.Machines[node]; !ours || recorded.Nodes[node].LastConfirmed != nil || p == nil {
		return false
	}
	<-p.inspected
	return p.err == nil && !l.report(node).Deployed
}
