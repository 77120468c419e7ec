package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/state"
)

// boots are the machines of a run, each on its own way to being ready.
type boots struct {
	g         *ground
	nodes     map[string]*boot
	addressed sync.WaitGroup     // for those whose addresses have to be found out
	all       sync.WaitGroup     // and what is told about them
	giveUp    context.CancelFunc // ends waiting for what was started
}

type boot struct {
	over chan struct{}
	err  error
	// later is what is done with the machine when its node's turn comes. Until then it runs on.
	later *booting
}

// later is what is done with the node's machine when the node's turn comes, or nil.
func (b *boots) later(node string) *booting {
	if b == nil || b.nodes[node] == nil {
		return nil
	}
	return b.nodes[node].later
}

// wait waits until the node's machine is ready. A node without one need not.
func (b *boots) wait(node string) error {
	if b == nil || b.nodes[node] == nil {
		return nil
	}
	<-b.nodes[node].over
	return b.nodes[node].err
}

// end waits for what is under way.
func (b *boots) end() {
	if b == nil {
		return
	}
	b.all.Wait()
	b.giveUp()
	b.g.close()
}

// errors are those of machines so far.
func (b *boots) errors() error {
	var errs []error
	for _, c := range b.g.Changes {
		if one := b.nodes[c.Node]; one != nil {
			select {
			case <-one.over:
				errs = append(errs, one.err)
			default:
			}
		}
	}
	return errors.Join(errs...)
}

// start begins to make and start machines, and returns.
func (r *run) start(ctx context.Context, g *ground, client state.Key) *boots {
	b := &boots{g: g, nodes: map[string]*boot{}}
	var waiting context.Context
	waiting, b.giveUp = context.WithCancel(ctx)
	f := r.footing(ctx, g)
	workers := r.Parallel
	if workers <= 0 {
		workers = len(g.Changes) + 1
	}
	slots := make(chan struct{}, workers)
	counts := map[provision.Action]int{}
	var leaders sync.WaitGroup
	var all []*booting
	for _, c := range g.Changes {
		if c.Action == provision.Remove {
			continue
		}
		one := &boot{over: make(chan struct{})}
		b.nodes[c.Node] = one
		if !g.Network.Mode.Ours() {
			b.addressed.Add(1)
		}
		m := &booting{run: r, g: g, f: f, c: c, client: client, slots: slots, turn: leaders.Wait, made: func() {}, addressed: sync.OnceFunc(func() {
			if !g.Network.Mode.Ours() {
				b.addressed.Done()
			}
		})}
		if r.mustWaitForTurn(c) {
			later := *m
			one.later = &later
			m.c.Action = provision.Keep
		}
		counts[m.c.Action]++
		if r.leads(c) {
			leaders.Add(1)
			m.turn, m.made = func() {}, sync.OnceFunc(leaders.Done)
		}
		all = append(all, m)
	}
	for _, m := range all {
		one := b.nodes[m.c.Node]
		b.all.Go(func() {
			one.err = m.through(ctx, waiting)
			m.made()
			close(one.over) // first, so that who waits for addresses sees the error
			m.addressed()
		})
	}
	b.all.Go(f.images)
	r.tellWhenBooted(b, counts)
	return b
}

// leads tells whether the node is where the others find the cluster's API. They wait for what
// is set up there, and it would wait for their disks.
func (r *run) leads(c provision.Change) bool {
	cluster := r.hive.Cluster
	return cluster != nil && cluster.Endpoint != nil && cluster.Endpoint.Role != nil && *cluster.Endpoint.Role == c.Role
}

// tellWhenBooted ends the phase when the last machine is ready, or is not.
func (r *run) tellWhenBooted(b *boots, counts map[provision.Action]int) {
	b.all.Go(func() {
		for _, one := range b.nodes {
			<-one.over
		}
		failed := 0
		for _, one := range b.nodes {
			if one.err != nil {
				failed++
			}
		}
		text := countActions(counts)
		if failed > 0 {
			text = fmt.Sprintf("%d of %s not ready", failed, Count(len(b.nodes), "machine"))
		}
		r.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Provision, Total: len(b.nodes), Failed: failed > 0, Text: text})
	})
}

// countActions is `2 created, 1 kept`.
func countActions(counts map[provision.Action]int) string {
	var parts []string
	for _, a := range []struct {
		action provision.Action
		done   string
	}{
		{provision.Create, "created"}, {provision.Finish, "finished"}, {provision.Recreate, "recreated"},
		{provision.Start, "started"}, {provision.Resume, "resumed"}, {provision.Restart, "restarted"}, {provision.Reconnect, "reconnected"}, {provision.Keep, "kept"},
	} {
		if n := counts[a.action]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, a.done))
		}
	}
	if len(parts) == 0 {
		return "no machines"
	}
	return strings.Join(parts, ", ")
}

// leave has nobody wait for machines to become ready. Those that are being made are
// finished, and the next run waits for them.
func (b *boots) leave() {
	if b != nil {
		b.giveUp()
	}
}

// of is closed when the node's machine is ready, or will not be; nil for a node without one.
func (b *boots) of(node string) <-chan struct{} {
	if b == nil || b.nodes[node] == nil {
		return nil
	}
	return b.nodes[node].over
}

// kept tells whether nothing is to be done first with what the node is: no machine of ours, or one
// that runs on.
func (b *boots) kept(node string) bool {
	return b == nil || b.nodes[node] == nil || slices.ContainsFunc(b.g.Changes, func(c provision.Change) bool {
		return c.Node == node && c.Action == provision.Keep
	})
}

// failures are machines that could not be made. Those that nobody waited for are none.
func (b *boots) failures() error {
	if b == nil {
		return nil
	}
	var errs []error
	for _, c := range b.g.Changes {
		var failed *BootError
		if one := b.nodes[c.Node]; one != nil && errors.As(one.err, &failed) && !failed.Started {
			errs = append(errs, failed)
		}
	}
	return errors.Join(errs...)
}
