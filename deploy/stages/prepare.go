package stages

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// preparation is what happens before a node is changed: its machine gets ready, the node is inspected, and its system copied.
type preparation struct {
	inspected chan struct{} // closed after observed and err are set
	observed  activate.Node // the result of the inspection; empty if the machine does not run
	err       error
	copied    string // the system that was copied; set when the preparation has ended
}

type preparations struct {
	*run
	byNode     map[string]*preparation
	ready      map[string]<-chan struct{} // by node; closed when the preparation of the node has ended
	stopCopies func()
	running    sync.WaitGroup
}

// prepareNodes starts a goroutine for each node and returns at once. The goroutine waits only for the machine and the system of
// its own node, so a system is copied while other systems are still evaluated and built. A copy changes nothing that runs. If the
// run fails afterwards, the copied paths stay on the node, so that the next run does not copy them again: a garbage collector root
// in /run protects them until the next boot. If a copy fails, the deployment of the node copies again, and reports the error.
func (r *run) prepareNodes(ctx context.Context) *preparations {
	copyCtx, stopCopies := context.WithCancel(ctx)
	all := &preparations{run: r, byNode: map[string]*preparation{}, ready: map[string]<-chan struct{}{}, stopCopies: stopCopies}
	inspections := rollout.NewSlots(r.Parallel)
	for _, n := range r.nodes {
		p, ready := &preparation{inspected: make(chan struct{})}, make(chan struct{})
		all.byNode[n.Name], all.ready[n.Name] = p, ready
		all.running.Go(func() {
			defer close(ready)
			p.err = failure.Recover(func() (err error) {
				p.observed, err = all.inspectWhenReady(ctx, n, inspections)
				return err
			})
			if current := p.observed.Current; nixeval.IsStorePath(current) { // otherwise, the local Nix daemon could not be asked for it
				r.Copier.Expect([]string{current}) // recordChanges compares it with the new system
			}
			close(p.inspected)
			if p.err == nil && !r.preview {
				_ = failure.Recover(func() error { p.copied = all.copySystem(copyCtx, n, p); return nil })
			}
		})
	}
	return all
}

// inspectWhenReady waits until the node's machine is ready, and inspects the node. If only keys are uploaded, it only connects to
// the node. If a plan is made, it does nothing for a node whose machine does not run.
func (l *preparations) inspectWhenReady(ctx context.Context, n nixeval.Node, slots rollout.Slots) (activate.Node, error) {
	ready := l.machines.WaitReady(ctx, n.Name)
	defer slots.Enter()()
	if ctx.Err() != nil { // the run was cancelled before the inspection started
		return activate.Node{}, context.Cause(ctx)
	}
	if ready != nil {
		return activate.Node{}, ready
	}
	switch {
	case l.preview && isDown(l.machineAction(n.Name)):
		return activate.Node{}, nil
	case l.preview: // does not wait for a reboot that an earlier run has requested
		h, err := l.Fleet.Host(ctx, n)
		if err != nil {
			return activate.Node{}, err
		}
		return l.Activator.Inspect(ctx, n.Name, h, activate.Full)
	case l.Goal == node.UploadKeys: // does not depend on the node's systems
		return l.InspectWith(ctx, n, node.OnlyLogin)
	case l.mayHaveEngine():
		return l.InspectWith(ctx, n, activate.Units)
	}
	return l.InspectWith(ctx, n, activate.Systems)
}

// mayHaveEngine reports whether an engine may check the health of the nodes after the run. Such a check compares the failed
// systemd units after the run with those in the inspection.
func (l *preparations) mayHaveEngine() bool {
	recorded := slices.Collect(maps.Values(l.Store.State().Nodes))
	return len(l.hive.Broken) > 0 || slices.ContainsFunc(recorded, func(n state.Node) bool { return n.Engine != "" }) ||
		slices.ContainsFunc(l.hive.Units, func(u nixeval.Unit) bool { return u.Deployment.Engine != nil })
}

// copySystem waits until the system of an inspected node is built, copies the system to the node, and returns its path. It returns
// an empty string if no copy is needed or the copy fails.
func (l *preparations) copySystem(ctx context.Context, n nixeval.Node, p *preparation) string {
	c, evaluated := l.systems.waitEvaluated(ctx, n.Unit)
	if !evaluated || l.systems.buildsOnTarget(n.Unit) {
		return ""
	}
	decided := l.observeNode(n, c, true, p)
	if !decided.Copy || !l.systems.buildAndWait(ctx, n.Unit) {
		return ""
	}
	defer l.slots.Enter()()
	if ctx.Err() != nil || l.Transfer(ctx, decided.Task, l.Options.Options.Options) != nil {
		return ""
	}
	return c.Out
}

func (l *preparations) stop() {
	l.stopCopies()
	l.running.Wait()
}

// observed returns the result of the inspection of a node. It is empty until the inspection has ended. Unlike the state, it also shows
// a deployment that was made from another computer.
func (l *preparations) observed(name string) activate.Node {
	if p := l.byNode[name]; p != nil && isClosed(p.inspected) && p.err == nil {
		return p.observed
	}
	return activate.Node{}
}

// wasRecreated reports whether the machine of a node was recreated and the node has not been deployed since. It returns true only
// if neither the state nor the node has a deployment, because the engine then removes the node's old member.
func (l *preparations) wasRecreated(name string, recorded *state.State) bool {
	p := l.byNode[name]
	if _, ours := recorded.Machines[name]; !ours || recorded.Nodes[name].LastConfirmed != nil || p == nil {
		return false
	}
	<-p.inspected
	return p.err == nil && !node.HasDeployment(p.observed)
}

// hasDeployedMember reports whether a node that was deployed before this run is a cluster member according to the hive or the
// state. It first waits until the nodes that were deployed before have been inspected, so that for each of them either a
// connection or an error exists.
func (l *preparations) hasDeployedMember(ctx context.Context) bool {
	recorded := l.Store.State()
	deployed := false
	for _, n := range l.hive.Nodes {
		u := l.hive.Unit(n.Unit)
		p, confirmed := l.byNode[n.Name], recorded.Nodes[n.Name].LastConfirmed != nil
		if (u == nil || u.Deployment.Engine == nil) && recorded.Nodes[n.Name].Engine == "" {
			continue
		}
		if p != nil && (confirmed || l.machines.IsKept(n.Name)) {
			select {
			case <-p.inspected:
			case <-ctx.Done():
			}
		}
		deployed = deployed || confirmed || node.HasDeployment(l.observed(n.Name))
	}
	return deployed
}

// askVersions asks the engines how the run would change the versions of their software, by node. An engine may refuse a version.
func (r *run) askVersions(ctx context.Context, prepared *preparations) (map[string]engine.Change, error) {
	if !prepared.hasDeployedMember(ctx) || ctx.Err() != nil {
		return nil, nil
	}
	return rollout.VersionChanges(ctx, r.Engines, r.Fleet, r.hive, r.nodes)
}

// observeCluster observes the running cluster if this run may disturb it; otherwise the cluster has engines but no members.
func (r *run) observeCluster(ctx context.Context, prepared *preparations) (rollout.Cluster, error) {
	o := r.observer(r.hive, prepared.observed, r.Drain)
	o.Away = r.Away
	if r.Engines == nil {
		return rollout.NewCluster(nil, o), nil
	}
	if !prepared.hasDeployedMember(ctx) || !r.Goal.ActivatesNow() && !r.machines.AnyMachineDeferred() {
		engines, err := r.Engines.Of(r.hive, r.Fleet)
		return rollout.NewCluster(engines, o), err
	}
	o.Recreated = func(node string) bool { return prepared.wasRecreated(node, r.Store.State()) }
	o.MayStart = !r.preview
	return o.Observe(ctx)
}

// decidePlan waits for the inspections of nodes, and decides what the run does to them, and in which order. removed are the nodes
// whose machines are removed at the end.
func (r *run) decidePlan(ctx context.Context, nodes []nixeval.Node, removed []string, cluster rollout.Cluster, prepared *preparations) plan.Plan {
	var all []plan.Node
	for _, n := range nodes {
		p := prepared.byNode[n.Name]
		<-p.inspected
		c, built := r.systems.closureOf(n.Unit)
		all = append(all, r.decideNode(ctx, n, c, built, p))
	}
	return plan.Decide(all, removed, cluster.Cluster, r.Options.Options)
}

// decideNode decides what the run does to an inspected node, and loads the node's keys, so that an error in a key is found before
// anything is changed on the node. If the node cannot be deployed, the error is in the returned plan.Node.
func (r *run) decideNode(ctx context.Context, n nixeval.Node, c nixeval.Closure, built bool, p *preparation) plan.Node {
	decided := r.observeNode(n, c, built, p)
	if !decided.CanDeploy() {
		return decided
	}
	if decided.Keys && !isDown(decided.Machine) {
		keys, err := r.Uploader.Load(ctx, n.Name, decided.Deployment, secrets.All)
		decided.KeySet, decided.Err = &keys, fleet.NewNodeError(n.Name, event.Keys, err)
	}
	return decided
}

// observeNode collects what is known about an inspected node, and decides what the run does to it, without its keys.
func (r *run) observeNode(n nixeval.Node, c nixeval.Closure, built bool, p *preparation) plan.Node {
	o := plan.Observation{
		Task: node.Task{Node: n, Deployment: r.hive.Unit(n.Unit).Deployment, Closure: c, BuildOnTarget: r.systems.buildsOnTarget(n.Unit), Observed: p.observed},
		Err:  p.err, Built: built, Recorded: r.Store.Node(n.Name), Machine: r.machineAction(n.Name),
	}
	if r.Machines != nil {
		var err error
		if o.Deployment, err = r.Machines.NodeDeployment(n, r.Store); err != nil { // adds the keys of nixbench
			return plan.Node{Observation: o, Action: plan.WouldRefuse, Err: &fleet.NodeError{Node: n.Name, Step: event.Keys, Err: err}}
		}
	}
	decided := plan.DecideNode(o, r.Options.Options)
	if decided.Action == plan.WouldRefuse {
		decided.Err = fleet.NewNodeError(n.Name, event.Activate, decided.Err)
	}
	return decided
}

// machineAction returns what the run does to the machine of a node, such as create or restart, before it deploys the node.
func (r *run) machineAction(name string) changes.Action {
	if m := r.actions[name]; m != nil {
		return m.Action
	}
	return r.machines.DeferredAction(name)
}
