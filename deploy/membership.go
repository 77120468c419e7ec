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
func (r *run) anew(node string, looked looks) bool {
	known := r.Store.State()
	if _, ours := known.Machines[node]; !ours || known.Nodes[node].LastConfirmed != nil || looked[node] == nil {
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
// fails it is tried again in the end: others may only just boot.
func (r *run) invite(ctx context.Context, l living, node string) {
	if r.letIn(ctx, l, node) != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.outside = append(r.outside, node)
	}
}

// inviteAgain is for those that could not be let in when they were deployed. Where that fails
// once more the check at the end tells what has become of it.
func (r *run) inviteAgain(ctx context.Context, l living) {
	for _, node := range r.outside {
		if err := r.letIn(ctx, l, node); err != nil && ctx.Err() == nil {
			r.warn(node, err)
		}
	}
}

func (r *run) letIn(ctx context.Context, l living, node string) error {
	wait := r.Send.Wait(event.Event{Node: node, Text: "the cluster to let it in"})
	defer wait.End()
	var errs []error
	for _, e := range l.engines {
		if inviter, ok := e.(engine.Inviter); ok {
			errs = append(errs, inviter.Invite(ctx, node))
		}
	}
	return errors.Join(errs...)
}

// farewell takes nodes out of what runs together, before their machines are removed. All let
// go of their work before the first is taken out: until then they can go on as before, and
// do where one of them does not let go.
func (d *Deployer) farewell(ctx context.Context, engines []engine.Engine, nodes []string, withoutDrain bool, o engine.DrainOptions) error {
	o.ForGood = true
	for _, e := range engines {
		members, err := e.Members(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !withoutDrain:
			return &AloneError{Err: err}
		case err != nil:
			d.warn("", fmt.Errorf("machines are removed, and the others go on counting their nodes: %w", err))
			continue
		}
		going := slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { _, is := members[n]; return !is })
		if !withoutDrain {
			if err := d.checkDrain(ctx, e, going, o); err != nil {
				return err
			}
		}
		for i, node := range going {
			if withoutDrain {
				break
			}
			if err := d.drain(ctx, e, node, "leaves for good", o); err != nil {
				return errors.Join(err, d.stay(ctx, e, going[:i]))
			}
		}
		f, ok := e.(engine.Forgetter)
		for i, node := range going {
			if !ok {
				break
			}
			if err := d.parting(node, "is taken out", func(func(string)) error { return f.Forget(ctx, node) }); err != nil {
				return errors.Join(err, d.stay(ctx, e, going[i:]))
			}
		}
	}
	return nil
}

// parting is a step of it that takes time.
func (d *Deployer) parting(node, what string, f func(report func(string)) error) error {
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
func (d *Deployer) stay(ctx context.Context, e engine.Engine, nodes []string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backTimeout)
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
type AloneError struct{ Err error }

func (e *AloneError) Error() string {
	return "no node can be taken out of the cluster: " + e.Err.Error()
}
func (e *AloneError) Unwrap() error { return e.Err }

// Hint says what to do about it.
func (e *AloneError) Hint() string {
	return "--no-drain removes the machines all the same; the others go on counting them"
}

// takeOut takes nodes out of what the remaining ones run together. With those that could tell
// of it all gone, there is nothing to be taken out of.
func (d *Deployer) takeOut(ctx context.Context, doom *Doom, withoutDrain bool, o engine.DrainOptions) error {
	nodes := leaving(doom.List)
	teams, err := d.Engines.of(d.Machines.Hive, d.Fleet, nodes)
	if err != nil {
		return err
	}
	if err := d.unread(d.Machines.Hive); err != nil && !withoutDrain {
		return err
	} else if err != nil {
		d.warn("", fmt.Errorf("machines are removed, and others may go on counting their nodes: %w", err))
	}
	var engines []engine.Engine
	for _, t := range teams {
		engines = append(engines, t.engine)
	}
	return d.farewell(ctx, engines, nodes, withoutDrain, o)
}
