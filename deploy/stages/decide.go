package stages

import (
	"context"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/nixeval"
)

// buildIfVersionAllowed evaluates and builds the systems. At the same time it asks the cluster's engines whether they accept the
// new versions of their software. If an engine refuses a version, the build is cancelled and the refusal is returned. If the
// evaluation or the build fails first, the request to the engines is cancelled, because the request may wait for machines that are
// still booting.
func (r *run) buildIfVersionAllowed(ctx context.Context, eval *nixeval.Evaluator, prepared *preparations) (map[string]nixeval.Closure, error) {
	if !r.Goal.Activates() {
		return r.systems.build(ctx, eval)
	}
	buildCtx, stopBuild := context.WithCancelCause(ctx)
	defer stopBuild(nil)
	askCtx, stopAsking := context.WithCancel(ctx)
	defer stopAsking()
	answered := make(chan error, 1)
	go func() {
		var err error
		if r.hasDeployedMember(askCtx, prepared) && askCtx.Err() == nil {
			_, err = rollout.VersionChanges(askCtx, r.Engines, r.Fleet, r.hive, r.nodes)
		}
		if askCtx.Err() != nil {
			err = nil // the error is about the cancellation
		}
		if err != nil {
			stopBuild(err)
		}
		answered <- err
	}()
	closures, err := r.systems.build(buildCtx, eval)
	if err != nil && !r.KeepGoing {
		stopAsking()
	}
	if refusal := <-answered; refusal != nil {
		return nil, refusal
	}
	return closures, err
}

// observeCluster observes the running cluster if this run may disturb it. Otherwise it returns a cluster that contains the engines
// but no members.
func (r *run) observeCluster(ctx context.Context, closures map[string]nixeval.Closure, prepared *preparations) (rollout.Cluster, error) {
	if r.Engines == nil {
		return rollout.NewCluster(nil, r.Send), nil
	}
	if !r.hasDeployedMember(ctx, prepared) || !r.Goal.ActivatesNow() && !r.machines.AnyMachineDeferred() {
		engines, err := r.Engines.Of(r.hive, r.Fleet)
		return rollout.NewCluster(engines, r.Send), err
	}
	r.waitForPreviousRuns(ctx, closures, prepared)
	o := r.observer(r.hive, prepared.report, r.Drain)
	o.Recreated = func(node string) bool { return prepared.wasRecreated(node, r.Store.State()) }
	return o.Observe(ctx)
}

// hasDeployedMember reports whether a node that was deployed before this run is a cluster member according to the hive or the
// state. It first waits until the nodes that were deployed before have been inspected, so that for each of them either a
// connection or an error exists.
func (r *run) hasDeployedMember(ctx context.Context, prepared *preparations) bool {
	recorded := r.Store.State()
	deployed := false
	for _, n := range r.hive.Nodes {
		u := r.hive.Unit(n.Unit)
		p, confirmed := prepared.byNode[n.Name], recorded.Nodes[n.Name].LastConfirmed != nil
		if (u == nil || u.Deployment.Engine == nil) && recorded.Nodes[n.Name].Engine == "" {
			continue
		}
		if p != nil && (confirmed || r.machines.IsKept(n.Name)) {
			select {
			case <-p.inspected:
			case <-ctx.Done():
			}
		}
		deployed = deployed || confirmed || prepared.report(n.Name).Deployed
	}
	return deployed
}

// waitForPreviousRuns waits for activations that still run on members although the nixbench that had started them was
// killed. Such an activation may stop the engine's services, so that the engine would not answer this run.
func (r *run) waitForPreviousRuns(ctx context.Context, closures map[string]nixeval.Closure, prepared *preparations) {
	var busy []nixeval.Node
	for _, n := range r.hive.Nodes {
		u, p := r.hive.Unit(n.Unit), prepared.byNode[n.Name]
		if _, built := closures[n.Unit]; !built || u.Deployment.Engine == nil || p == nil || !isClosed(p.inspected) { // a new node has no earlier run
			continue
		}
		if p.err == nil && p.observed.Last != nil && p.observed.Last.Alive {
			busy = append(busy, n)
		}
	}
	fleet.EachReady(ctx, busy, prepared.ready(), r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
		r.Send.Send(event.Event{Kind: event.Message, Level: "note", Node: n.Name, Text: "waits for an earlier run that is still active on it"})
		h, err := r.Fleet.Host(ctx, n)
		if err == nil {
			_, err = r.Activator.FinishPrevious(ctx, n.Name, h, closures[n.Unit].Out)
		}
		if err == nil { // an error is ignored, because the deployment of the node will report it
			p := prepared.byNode[n.Name]
			p.observed, p.err = r.nodeChanger().Inspect(ctx, n)
		}
		return struct{}{}, nil
	})
}

// decide returns what the run does to an inspected node.
func (r *run) decide(n nixeval.Node, c nixeval.Closure, built bool, p *preparation) (plan.Node, error) {
	o := plan.Observation{Node: n, Observed: p.observed, Err: p.err, Closure: c, Built: built, Recorded: r.Store.Node(n.Name)}
	var err error
	if r.Machines == nil {
		o.Deployment = r.hive.Unit(n.Unit).Deployment
	} else if o.Deployment, err = r.Machines.NodeDeployment(n, r.Store); err != nil { // adds the keys of nixbench
		return plan.Node{Observation: o, Action: plan.WouldRefuse}, &fleet.NodeError{Node: n.Name, Step: event.Keys, Err: err}
	}
	if task := r.machines.DeferredTask(n.Name); task != nil {
		o.Machine = task.Change.Action
	}
	return plan.DecideNode(o, r.Options.Options), nil
}

// newTask waits for the inspection of a node, decides what the run does to the node, and loads the node's keys. The keys are
// loaded here so that an error in a key is found before anything is changed on the node. If the node cannot be deployed, the error
// is in the returned plan.Node.
func (r *run) newTask(ctx context.Context, n nixeval.Node, c nixeval.Closure, built bool, p *preparation) (plan.Node, node.Task) {
	<-p.inspected
	decided, err := r.decide(n, c, built, p)
	switch {
	case err != nil:
		decided.Err = err
	case decided.Action == plan.WouldRefuse:
		decided.Err = &fleet.NodeError{Node: n.Name, Step: event.Activate, Err: decided.Err}
	}
	if !decided.CanDeploy() {
		return decided, node.Task{}
	}
	if r.Goal != node.UploadKeys {
		r.changes.add(systemChange{n.Name, p.observed.Current, c.Out})
	}
	t := node.Task{
		Node: n, Deployment: decided.Deployment, Closure: c, BuildOnTarget: r.systems.buildsOnTarget(n.Unit),
		Observed: p.observed, Unchanged: decided.Action == plan.WouldNothing,
	}
	if decided.Keys == plan.ReplaceKeys {
		keys, err := r.Uploader.Load(ctx, n.Name, decided.Deployment, secrets.All)
		if err != nil {
			decided.Err = &fleet.NodeError{Node: n.Name, Step: event.Keys, Err: err}
		}
		t.Keys = &keys
	}
	return decided, t
}
