package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nixbench/nixbench/deploy/machines"

	"github.com/nixbench/nixbench/deploy/fleet"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
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
	if !ok || !r.Goal.ActivatesNow() {
		return nil
	}
	if err := f.RemoveMember(ctx, name); err != nil {
		return &fleet.NodeError{Node: name, Step: event.Drain, Err: err}
	}
	return nil
}

// admitPending admits nodes that were deployed and are not members yet. In a running cluster it is called
// after the members that admit them have changed, so that those have the configuration of the hive.
func (r *run) admitPending(ctx context.Context, cluster clusterState, nodes []nixeval.Node) {
	if len(cluster.members) == 0 || !r.Goal.ActivatesNow() {
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
	wait := r.Send.Wait(event.Event{Node: node, Text: "the cluster to let it in"})
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
// before it removes the first one. If a drain fails, none is removed and all take work as before.
func (d *Deployer) removeMembers(ctx context.Context, engines []engine.Engine, nodes []string, withoutDrain bool, o engine.DrainOptions) error {
	for _, e := range engines {
		members, err := e.Members(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !withoutDrain:
			return &ClusterUnavailableError{Err: err}
		case err != nil:
			d.warn("", fmt.Errorf("machines are removed, and the others go on counting their nodes: %w", err))
			continue
		}
		remove := slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { _, isMember := members[n]; return !isMember })
		if len(remove) == 0 {
			continue
		}
		remover, ok := e.(engine.MemberRemover)
		if !withoutDrain {
			drain := e.Drain
			if ok {
				drain = remover.DrainForRemoval
			}
			if err := d.checkEngineDrains(ctx, e, engine.DrainChecker.CheckDrainForRemoval, remove, o); err != nil {
				return err
			}
			if err := d.drainMembers(ctx, e, drain, remove, "is drained before its removal", o); err != nil {
				return err
			}
		}
		for i, node := range remove {
			if !ok {
				break
			}
			if err := d.runMemberStep(node, "is removed from the cluster", func() error { return remover.RemoveMember(ctx, node) }); err != nil {
				return errors.Join(err, d.undoDrain(ctx, e, remove[i:]))
			}
		}
	}
	return nil
}

// runMemberStep waits for a member, uncordons it or removes it, and sends the start and the end of that step.
func (d *Deployer) runMemberStep(node, text string, step func() error) error {
	d.Send.Send(event.Event{Kind: event.NodeStart, Phase: event.Drain, Node: node, Text: text})
	err := step()
	d.Send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Drain, Node: node, Failed: err != nil})
	if err != nil {
		return &fleet.NodeError{Node: node, Step: event.Drain, Err: err}
	}
	return nil
}

// undoDrain uncordons nodes that stay members because the removal failed.
func (d *Deployer) undoDrain(ctx context.Context, e engine.Engine, nodes []string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), uncordonTimeout)
	defer cancel()
	return fleet.ForAll(nodes, func(node string) error {
		if err := e.Uncordon(ctx, node); err != nil {
			return &fleet.NodeError{Node: node, Step: event.Drain, Err: err}
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
	return "no node can be taken out of the cluster: " + e.Err.Error()
}
func (e *ClusterUnavailableError) Unwrap() error { return e.Err }

// Hint says what to do about it.
func (e *ClusterUnavailableError) Hint() string {
	return "--no-drain removes the machines all the same; the others go on counting them"
}

// removeDestroyedMembers removes the nodes of a destroy plan from their cluster. The nodes that remain are
// asked about it; if none remains, nothing has to be removed from a cluster.
func (d *Deployer) removeDestroyedMembers(ctx context.Context, destroyPlan *machines.DestroyPlan, withoutDrain bool, o engine.DrainOptions) error {
	nodes := destroyPlan.RemovedNodes()
	withMembers, err := d.Engines.withMembers(d.Machines.Hive, d.Fleet, nodes)
	if err != nil {
		return err
	}
	if err := d.checkMembersEvaluable(d.Machines.Hive); err != nil && !withoutDrain {
		return err
	} else if err != nil {
		d.warn("", fmt.Errorf("machines are removed, and others may go on counting their nodes: %w", err))
	}
	var engines []engine.Engine
	for _, t := range withMembers {
		engines = append(engines, t.engine)
	}
	return d.removeMembers(ctx, engines, nodes, withoutDrain, o)
}
