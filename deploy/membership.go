package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/nixeval"
)

// Who comes into what the nodes run together, and who leaves it for good.

// anew tells whether a node's machine was made after all that was deployed to the node. Both
// we and the machine have to say so: what it was a member of is about to forget it.
func (r *run) wasRecreated(node string, inspected looks) bool {
	recorded := r.Store.State()
	if _, ours := recorded.Machines[node]; !ours || recorded.Nodes[node].Good != nil || inspected[node] == nil {
		return false
	}
	<-inspected[node].over
	observed := inspected[node].found
	return inspected[node].err == nil && observed.Last == nil && len(observed.Deployed) == 0
}

// forget has a node that was made anew forgotten, so that it can come in as a new one.
func (r *run) removeStaleMember(ctx context.Context, m member, name string) error {
	f, ok := m.engine.(engine.Forgetter)
	if !ok || !r.Goal.activatesNow() {
		return nil
	}
	if err := f.Forget(ctx, name); err != nil {
		return &NodeError{Node: name, Step: event.Drain, Err: err}
	}
	return nil
}

// welcome invites nodes that became no members by being deployed. In a living cluster that
// comes after the waves of those that let them in, who have what the hive says by then.
func (r *run) admitPending(ctx context.Context, cluster clusterState, nodes []nixeval.Node) {
	if len(cluster.members) == 0 || !r.Goal.activatesNow() {
		return // each was invited at once
	}
	for _, n := range nodes {
		if m, isMember := cluster.members[n.Name]; !isMember || m.recreated {
			r.admit(ctx, cluster, n.Name)
		}
	}
}

// invite has the node's engine let it in, once it runs what the hive wants. Where that
// fails it is tried again in the end: others may only just boot.
func (r *run) admit(ctx context.Context, cluster clusterState, node string) {
	if r.admitOnce(ctx, cluster, node) != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.outside = append(r.outside, node)
	}
}

// inviteAgain is for those that could not be let in when they were deployed. Where that fails
// once more the check at the end tells what has become of it.
func (r *run) retryAdmissions(ctx context.Context, cluster clusterState) {
	for _, node := range r.outside {
		if err := r.admitOnce(ctx, cluster, node); err != nil && ctx.Err() == nil {
			r.warn(node, err)
		}
	}
}

func (r *run) admitOnce(ctx context.Context, cluster clusterState, node string) error {
	wait := r.Send.Wait(event.Event{Node: node, Text: "the cluster to let it in"})
	defer wait.End()
	var errs []error
	for _, e := range cluster.engines {
		if inviter, ok := e.(engine.Inviter); ok {
			errs = append(errs, inviter.Invite(ctx, node))
		}
	}
	return errors.Join(errs...)
}

// farewell takes nodes out of what runs together, before their machines are removed. All let
// go of their work before the first is taken out: until then they can go on as before, and
// do where one of them does not let go.
func (d *Deployer) removeMembers(ctx context.Context, engines []engine.Engine, nodes []string, withoutDrain bool, o engine.DrainOptions) error {
	o.ForGood = true
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
			if err := d.drainNode(ctx, e, node, "leaves for good", o); err != nil {
				return errors.Join(err, d.undoDrain(ctx, e, leaving[:i]))
			}
		}
		f, ok := e.(engine.Forgetter)
		for i, node := range leaving {
			if !ok {
				break
			}
			if err := d.runMemberStep(node, "is taken out", func(func(string)) error { return f.Forget(ctx, node) }); err != nil {
				return errors.Join(err, d.undoDrain(ctx, e, leaving[i:]))
			}
		}
	}
	return nil
}

// parting is a step of it that takes time.
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

// stay gives work back to nodes that do not leave after all.
func (d *Deployer) undoDrain(ctx context.Context, e engine.Engine, nodes []string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), uncordonTimeout)
	defer cancel()
	return eachOf(nodes, func(node string) error {
		if err := e.Return(ctx, node, func(string) {}); err != nil {
			return &NodeError{Node: node, Step: event.Drain, Err: err}
		}
		return nil
	})
}

// warn tells of what does not end the run.
func (d *Deployer) warn(node string, err error) {
	d.Send.Send(event.Event{Kind: event.Message, Level: "warning", Node: node, Text: err.Error()})
}

// AloneError is for what nodes run together, and which does not answer: no node can be taken out of it.
type ClusterUnavailableError struct{ Err error }

func (e *ClusterUnavailableError) Error() string {
	return "no node can be taken out of the cluster: " + e.Err.Error()
}
func (e *ClusterUnavailableError) Unwrap() error { return e.Err }

// Hint says what to do about it.
func (e *ClusterUnavailableError) Hint() string {
	return "--no-drain removes the machines all the same; the others go on counting them"
}

// takeOut takes nodes out of what the remaining ones run together. With those that could tell
// of it all gone, there is nothing to be taken out of.
func (d *Deployer) removeDestroyedMembers(ctx context.Context, destroyPlan *DestroyPlan, withoutDrain bool, o engine.DrainOptions) error {
	nodes := removedNodes(destroyPlan.Removals)
	teams, err := d.Engines.withMembers(d.Machines.Hive, d.Fleet, nodes)
	if err != nil {
		return err
	}
	if err := d.checkMembersEvaluable(d.Machines.Hive); err != nil && !withoutDrain {
		return err
	} else if err != nil {
		d.warn("", fmt.Errorf("machines are removed, and others may go on counting their nodes: %w", err))
	}
	var engines []engine.Engine
	for _, t := range teams {
		engines = append(engines, t.engine)
	}
	return d.removeMembers(ctx, engines, nodes, withoutDrain, o)
}
