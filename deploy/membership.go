package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
)

// This file admits nodes to a running cluster and removes members from it.

// wasRecreated reports whether the machine of a node is newer than all deployments of the node. Both the state
// and the machine must have no deployment, because the engine then removes the old member.
func (r *run) wasRecreated(node string, inspected inspections) bool {
	recorded := r.Store.State()
	if _, ours := recorded.Machines[node]; !ours || recorded.Nodes[node].LastConfirmed != nil || inspected[node] == nil {
		return false
	}
	<-inspected[node].done
	observed := inspected[node].observed
	return inspected[node].err == nil && observed.Last == nil && len(observed.Deployed) == 0
}

// removeStaleMember removes the member that a node was before its machine was recreated, so that the node can
// join as a new member.
func (r *run) removeStaleMember(ctx context.Context, m member, name string) error {
	f, ok := m.engine.(engine.MemberRemover)
	if !ok || !r.Goal.activatesNow() {
		return nil
	}
	if err := f.RemoveMember(ctx, name); err != nil {
		return &NodeError{Node: name, Step: event.Drain, Err: err}
	}
	return nil
}

// admitPending admits nodes that were deployed and are not members yet. In a running cluster it is called
// after the members that admit them have changed, so that those have the configuration of the hive.
func (r *run) admitPending(ctx context.Context, cluster clusterState, nodes []nixeval.Node) {
	if len(cluster.members) == 0 || !r.Goal.activatesNow() {
		return // each node was admitted right after it was deployed
	}
	for _, n := range nodes {
		if m, isMember := cluster.members[n.Name]; !isMember || m.recreated {
			r.admit(ctx, cluster, n.Name)
		}
	}
}

// admit asks the engines to admit a node that runs its new system. If that fails, retryAdmissions tries again
// at the end of the run, because the members that admit nodes may still be booting.
func (r *run) admit(ctx context.Context, cluster clusterState, node string) {
	if r.admitOnce(ctx, cluster, node) != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.notJoined = append(r.notJoined, node)
	}
}

// retryAdmissions admits the nodes that could not be admitted when they were deployed. A second failure is
// only a warning, because the check at the end of the run reports nodes that are missing.
func (r *run) retryAdmissions(ctx context.Context, cluster clusterState) {
	for _, node := range r.notJoined {
		if err := r.admitOnce(ctx, cluster, node); err != nil && ctx.Err() == nil {
			r.warn(node, err)
		}
	}
}

// admitOnce asks each engine once to admit a node.
func (r *run) admitOnce(ctx context.Context, cluster clusterState, node string) error {
	wait := r.Send.Wait(event.Event{Node: node, Text: "the cluster to admit it"})
	defer wait.End()
	var errs []error
	for _, e := range cluster.engines {
		if admitter, ok := e.(engine.Admitter); ok {
			errs = append(errs, admitter.Admit(ctx, node))
		}
	}
	return errors.Join(errs...)
}

// removeMembers removes nodes from their cluster before their machines are removed. It drains all of them
// before it removes the first one. If a drain fails, it uncordons those that it has drained, and none is
// removed.
func (d *Deployer) removeMembers(ctx context.Context, engines []engine.Engine, nodes []string, withoutDrain bool, o engine.DrainOptions) error {
	o.ForRemoval = true
	for _, e := range engines {
		members, err := e.Members(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !withoutDrain:
			return &ClusterUnavailableError{Err: err}
		case err != nil:
			d.warn("", fmt.Errorf("machines are removed, and the other members still list their nodes: %w", err))
			continue
		}
		leaving := slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { _, isMember := members[n]; return !isMember })
		if !withoutDrain {
			if err := d.checkEngineDrains(ctx, e, leaving, o); err != nil {
				return err
			}
		}
		for i, node := range leaving {
			if withoutDrain {
				break
			}
			if err := d.drainNode(ctx, e, node, "drained for removal", o); err != nil {
				return errors.Join(err, d.undoDrain(ctx, e, leaving[:i]))
			}
		}
		f, ok := e.(engine.MemberRemover)
		for i, node := range leaving {
			if !ok {
				break
			}
			if err := d.runMemberStep(node, "removed from the cluster", func(func(string)) error { return f.RemoveMember(ctx, node) }); err != nil {
				return errors.Join(err, d.undoDrain(ctx, e, leaving[i:]))
			}
		}
	}
	return nil
}

// runMemberStep runs one step of a drain, an uncordon or a removal, and sends its start, its progress and its
// end.
func (d *Deployer) runMemberStep(node, what string, f func(report func(string)) error) error {
	d.Send.Send(event.Event{Kind: event.NodeStart, Phase: event.Drain, Node: node, Text: what})
	err := f(func(text string) {
		d.Send.Send(event.Event{Kind: event.NodeProgress, Phase: event.Drain, Node: node, Text: text})
	})
	d.Send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Drain, Node: node, Failed: err != nil})
	if err != nil {
		return &NodeError{Node: node, Step: event.Drain, Err: err}
	}
	return nil
}

// undoDrain uncordons nodes that stay members because the removal failed.
func (d *Deployer) undoDrain(ctx context.Context, e engine.Engine, nodes []string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), uncordonTimeout)
	defer cancel()
	return runForAll(nodes, func(node string) error {
		if err := e.UncordonWhenReady(ctx, node, func(string) {}); err != nil {
			return &NodeError{Node: node, Step: event.Drain, Err: err}
		}
		return nil
	})
}

// warn sends a warning: a problem that does not end the run.
func (d *Deployer) warn(node string, err error) {
	d.Send.Send(event.Event{Kind: event.Message, Level: "warning", Node: node, Text: err.Error()})
}

// ClusterUnavailableError says that no node can be removed from a cluster because its engine does not answer.
type ClusterUnavailableError struct{ Err error }

func (e *ClusterUnavailableError) Error() string {
	return "no node can be removed from the cluster: " + e.Err.Error()
}

// Kind implements [failure.Classified].
func (e *ClusterUnavailableError) Kind() failure.Kind { return failure.Cluster }
func (e *ClusterUnavailableError) Unwrap() error      { return e.Err }

// Hint says what to do about it.
func (e *ClusterUnavailableError) Hint() string {
	return "--no-drain removes the machines without this step; the other members still list them"
}

// removeDestroyedMembers removes the nodes of a destroy plan from their cluster. The nodes that remain are
// asked about it; if none remains, nothing has to be removed from a cluster.
func (d *Deployer) removeDestroyedMembers(ctx context.Context, destroyPlan *DestroyPlan, withoutDrain bool, o engine.DrainOptions) error {
	nodes := removedNodes(destroyPlan.Removals)
	withMembers, err := d.Engines.withMembers(d.Machines.Hive, d.Fleet, nodes)
	if err != nil {
		return err
	}
	if err := d.checkMembersEvaluable(d.Machines.Hive); err != nil && !withoutDrain {
		return err
	} else if err != nil {
		d.warn("", fmt.Errorf("machines are removed, and other members may still list their nodes: %w", err))
	}
	var engines []engine.Engine
	for _, t := range withMembers {
		engines = append(engines, t.engine)
	}
	return d.removeMembers(ctx, engines, nodes, withoutDrain, o)
}
