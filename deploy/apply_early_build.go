package deploy

import (
	"context"

	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/nixeval"
)

// mayCopy reports whether a system may be copied early to an inspected node. It may not if the node has the system, or
// must not be changed, or is a member of a running cluster, which is drained and changed in its turn.
func (e *earlyCopies) mayCopy(n nixeval.Node, c nixeval.Closure) bool {
	r := e.run
	if e.isDeployedMember(n) || r.machines.DeferredTask(n.Name) != nil {
		return false
	}
	d, err := r.deploymentOf(n)
	if err != nil {
		return false
	}
	action := r.decide(n, d, c, true, e.inspected[n.Name]).Action
	return action == plan.WouldSwitch || action == plan.WouldFirst
}

// isDeployedMember reports whether a node is a cluster member that was deployed before this run, as far as it is known.
func (e *earlyCopies) isDeployedMember(n nixeval.Node) bool {
	return e.run.hive.Unit(n.Unit).Deployment.Engine != nil && (e.run.Store.Node(n.Name).LastConfirmed != nil || e.inspected.isDeployed(n.Name))
}

// addNeeded adds those of the closures to builds that a node needs a copy of. It does not wait for nodes that are still
// being inspected: they add their closures later. So a run that changes nothing starts no additional processes.
func (e *earlyCopies) addNeeded(ctx context.Context, builds *nixeval.Builds, evaluated map[string]nixeval.Closure) {
	if e == nil {
		return
	}
	batch := map[string]nixeval.Closure{}
	for _, n := range e.nodes {
		c, ok := evaluated[n.Unit]
		if !ok || batch[n.Unit] != (nixeval.Closure{}) || e.run.buildsOnTarget(n.Unit) || e.isDeployedMember(n) {
			continue
		}
		select {
		case <-e.inspected[n.Name].done:
			if e.mayCopy(n, c) {
				batch[n.Unit] = c
			}
		default:
			e.all.Go(func() {
				select {
				case <-e.closed:
				case <-e.inspected[n.Name].done:
					e.addInspected(ctx, builds, n, c)
				}
			})
		}
	}
	builds.Add(ctx, batch)
}

func (e *earlyCopies) addInspected(ctx context.Context, builds *nixeval.Builds, n nixeval.Node, c nixeval.Closure) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.isClosed() && e.mayCopy(n, c) {
		builds.Add(ctx, map[string]nixeval.Closure{n.Unit: c})
	}
}
