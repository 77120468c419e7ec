package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
)

// reporter sends events about what a run does with members of a cluster, such as a drain.
type reporter struct{ send event.Sink }

// warn sends a warning: a problem that does not end the run.
func (r reporter) warn(node string, err error) {
	r.send.Send(event.Event{Kind: event.Message, Level: "warning", Node: node, Text: err.Error()})
}

// drainForRemoval drains those of the nodes that are cluster members, because the run removes them at its end. It is called before
// the first node changes: the new configuration of a controller may no longer contain the removed nodes, and then the work on them
// would be lost. If a drain fails, none of the nodes stays drained.
func (cluster Cluster) drainForRemoval(ctx context.Context, nodes []string) error {
	for _, e := range cluster.engines {
		members := cluster.drainableNodes(e, nodes)
		if len(members) == 0 {
			continue
		}
		if err := cluster.drainMembers(ctx, e, members, "is drained before its removal", cluster.drainOptions.ForRemoval()); err != nil {
			return errors.Join(err, cluster.UncordonRemaining(ctx))
		}
		for _, node := range members {
			cluster.removing[node] = e
		}
	}
	return nil
}

// UncordonRemaining uncordons the nodes that drainForRemoval has drained. It is called if the run fails before it removes these
// nodes, because they then stay members.
func (cluster Cluster) UncordonRemaining(ctx context.Context) error {
	var errs []error
	for _, e := range cluster.engines {
		var nodes []string
		for _, node := range slices.Sorted(maps.Keys(cluster.removing)) {
			if cluster.removing[node] == e {
				nodes = append(nodes, node)
			}
		}
		errs = append(errs, uncordonNodes(ctx, e, nodes))
	}
	clear(cluster.removing)
	return errors.Join(errs...)
}

// RemoveMembers removes nodes from their cluster, before the machines of the nodes are removed. For each engine, it first drains
// all nodes (except those that drainForRemoval has drained), and then removes them. If a drain fails, no node of this engine is
// removed, and its nodes accept work as before.
func (cluster Cluster) RemoveMembers(ctx context.Context, nodes []string, withoutDrain bool, o engine.DrainOptions) error {
	for _, e := range cluster.engines {
		members, err := e.Members(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !withoutDrain:
			return &ClusterUnavailableError{Err: err}
		case err != nil:
			cluster.warn("", fmt.Errorf("machines are removed, and the other members still list their nodes: %w", err))
			continue
		}
		remove := slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { _, isMember := members[n]; return !isMember })
		undrained := slices.DeleteFunc(slices.Clone(remove), func(n string) bool { return cluster.removing[n] != nil })
		if !withoutDrain && len(undrained) > 0 {
			checks := cluster.checkEngineDrains(ctx, e, undrained, o.ForRemoval())
			if err := newBlockedError(checks); err != nil {
				return err
			}
			cluster.announceDeletions(checks)
			if err := cluster.drainMembers(ctx, e, undrained, "is drained before its removal", o.ForRemoval()); err != nil {
				return errors.Join(err, cluster.UncordonRemaining(ctx))
			}
		}
		remover, ok := e.(engine.MemberRemover)
		for i, node := range remove {
			if !ok {
				break
			}
			remaining := describeCertificates(ctx, e, node, members[node])
			if err := cluster.runMemberStep(ctx, e, node, "is removed from the cluster", func(ctx context.Context) error { return remover.RemoveMember(ctx, node) }); err != nil {
				return errors.Join(err, uncordonNodes(ctx, e, remove[i:]))
			}
			if remaining != "" {
				cluster.send.Send(event.Event{Kind: event.Message, Level: "note", Node: node, Text: remaining})
			}
		}
	}
	return nil
}

// describeCertificates returns a text about the certificates of a removed member: copies of them stay valid until they expire,
// since no engine can revoke a certificate. It returns an empty string if the engine uses no certificates. It does not ask a
// member that is not ready, because its node may be down.
func describeCertificates(ctx context.Context, e engine.Engine, node string, status engine.Status) string {
	certified, ok := e.(engine.Certified)
	if !ok {
		return ""
	}
	until := "they expire"
	if status.Ready {
		if all, err := certified.Certificates(ctx, node); err == nil && len(all) > 0 {
			last := slices.MaxFunc(all, func(a, b engine.Certificate) int { return a.Ends.Compare(b.Ends) })
			until = last.Ends.Format(time.DateOnly)
		}
	}
	return "removed; copies of its certificates cannot be revoked, and are valid until " + until
}

// runMemberStep calls step, which waits for a member, uncordons the member or removes it. It sends events for the start and the
// end of this call.
func (r reporter) runMemberStep(ctx context.Context, e engine.Engine, node, text string, step func(context.Context) error) error {
	r.send.Send(event.Event{Kind: event.NodeStart, Phase: event.Drain, Node: node, Text: text})
	err := r.watch(ctx, e, []string{node}, step)
	r.send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Drain, Node: node, Failed: err != nil})
	if err != nil {
		return &fleet.NodeError{Node: node, Step: event.Drain, Err: err}
	}
	return nil
}

// watch calls step, which waits for members. If the wait takes long, watch inspects the nodes of these members, and sends an event
// about what does not work there. It also adds this text to the error of step.
func (r reporter) watch(ctx context.Context, e engine.Engine, nodes []string, step func(context.Context) error) error {
	seen, err := engine.LookAt(e, nodes...).While(ctx, func(text string) { r.sendProgress(nodes[0], "waits: "+text) }, step)
	if err != nil && seen != "" && ctx.Err() == nil {
		return fmt.Errorf("%w\n%s", err, seen)
	}
	return err
}

// uncordonNodes uncordons nodes that should have been removed, but stay members because the removal has failed.
func uncordonNodes(ctx context.Context, e engine.Engine, nodes []string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), UncordonTimeout)
	defer cancel()
	return fleet.ForAll(nodes, func(node string) error {
		if err := e.Uncordon(ctx, node); err != nil {
			return &fleet.NodeError{Node: node, Step: event.Drain, Err: err}
		}
		return nil
	})
}

// ClusterUnavailableError means that no node can be removed from a cluster, because the cluster's engine does not answer.
type ClusterUnavailableError struct{ Err error }

func (e *ClusterUnavailableError) Error() string {
	return "no node can be removed from the cluster: " + e.Err.Error()
}

// Kind implements [failure.Classified].
func (e *ClusterUnavailableError) Kind() failure.Kind { return failure.Cluster }
func (e *ClusterUnavailableError) Unwrap() error      { return e.Err }

// Hint returns a text for the user: how to fix the error.
func (e *ClusterUnavailableError) Hint() string {
	return "--no-drain removes the machines without this step; the other members still list them"
}
