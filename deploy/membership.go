package deploy

import (
	"context"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/nixeval"
)

// Who comes into what the nodes run together, and who leaves it for good.

// anew tells whether a node's machine was made after all that was deployed to the node. Both
// we and the machine have to say so: what it was a member of is about to forget it.
func (r *run) anew(node string, looked looks) bool {
	known := r.Store.State()
	if _, ours := known.Machines[node]; !ours || known.Nodes[node].Good != nil || looked[node] == nil {
		return false
	}
	<-looked[node].over
	found := looked[node].found
	return looked[node].err == nil && found.Last == nil && len(found.Deployed) == 0
}

// forget has a node that was made anew forgotten, so that it can come in as a new one.
func (r *run) forget(ctx context.Context, m member, name string) error {
	f, ok := m.engine.(engine.Forgetter)
	if !ok || !r.Goal.runs() {
		return nil
	}
	if err := f.Forget(ctx, name); err != nil {
		return &NodeError{Node: name, Step: event.Drain, Err: err}
	}
	return nil
}

// welcome invites nodes that became no members by being deployed. In a living cluster that
// comes after the waves of those that let them in, who have what the hive says by then.
func (r *run) welcome(ctx context.Context, l living, nodes []nixeval.Node) {
	if len(l.members) == 0 || !r.Goal.runs() {
		return // each was invited at once
	}
	for _, n := range nodes {
		if m, is := l.members[n.Name]; !is || m.anew {
			r.invite(ctx, l, n.Name)
		}
	}
}

// invite has the node's engine let it in, once it runs what the hive wants. Where that
// fails the check at the end tells what has become of it.
func (r *run) invite(ctx context.Context, l living, node string) {
	for _, e := range l.engines {
		inviter, ok := e.(engine.Inviter)
		if !ok {
			continue
		}
		if err := inviter.Invite(ctx, node); err != nil && ctx.Err() == nil {
			r.Send.Send(event.Event{Kind: event.Message, Level: "warning", Node: node, Text: err.Error()})
		}
	}
}

// farewell takes a node out of what runs together, before its machine is removed.
func (r *run) farewell(ctx context.Context, l living, node string) error {
	m, is := l.members[node]
	if !is {
		return nil
	}
	return leaveForGood(ctx, r.Send, m.engine, node)
}

func leaveForGood(ctx context.Context, send event.Sink, e engine.Engine, node string) error {
	send.Send(event.Event{Kind: event.NodeStart, Phase: event.Drain, Node: node, Text: "leaves for good"})
	err := e.Leave(ctx, node, true)
	send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Drain, Node: node, Failed: err != nil})
	if err != nil {
		return &NodeError{Node: node, Step: event.Drain, Err: err}
	}
	return nil
}

// AloneError is for what nodes run together, and which does not answer: no node can be taken out of it.
type AloneError struct{ Err error }

func (e *AloneError) Error() string {
	return "no node can be taken out of the cluster: " + e.Err.Error()
}
func (e *AloneError) Unwrap() error { return e.Err }

// Hint says what to do about it.
func (e *AloneError) Hint() string {
	return "--no-drain removes the machines all the same; the others go on counting them"
}

// takeOut takes nodes out of what the remaining ones run together, one after the other. With
// those that could tell of it all gone, there is nothing to be taken out of.
func (d *Deployer) takeOut(ctx context.Context, doom *Doom) error {
	leaving := map[string]bool{}
	for _, one := range doom.List {
		leaving[one.Node] = true
	}
	engines, err := d.Engines.of(d.Machines.Hive, d.Fleet, leaving)
	if err != nil {
		return err
	}
	for _, e := range engines {
		members, err := e.Members(ctx)
		if err != nil {
			return &AloneError{Err: err}
		}
		for _, node := range sortedKeys(leaving) {
			if _, is := members[node]; is {
				if err := leaveForGood(ctx, d.Send, e, node); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
