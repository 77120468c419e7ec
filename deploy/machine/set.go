package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/state/runs"
)

// Set is the machines of a run. Each machine becomes ready independently of the other machines.
type Set struct {
	*Starter
	plan           *OpenPlan
	prerequisites  *prerequisites
	tasks          map[string]*Task   // by node
	slots          chan struct{}      // semaphore for the creation of machines; a machine that only waits until it is ready holds no slot
	awaitAddresses sync.WaitGroup     // waits until the address of every machine is discovered, or the machine's task has ended
	pending        sync.WaitGroup     // waits for all goroutines: the tasks, the preparation of images, the report of the phase's end
	stopWaiting    context.CancelFunc // ends the waiting for machines that were started and are not ready yet
}

// NoMachines returns the set of a run that changes no machines.
func NoMachines() *Set { return &Set{plan: &OpenPlan{}, stopWaiting: func() {}} }

func (s *Starter) Start(ctx context.Context, plan *OpenPlan) *Set {
	b := &Set{Starter: s, plan: plan, prerequisites: s.newPrerequisites(ctx, plan), tasks: map[string]*Task{}}
	var waitCtx context.Context
	waitCtx, b.stopWaiting = context.WithCancel(ctx)
	b.slots = make(chan struct{}, cmp.Or(max(s.Parallel, 0), len(plan.Changes)+1))
	counts := map[changes.Action]int{}
	for _, c := range plan.Changes {
		if c.Action == changes.Remove {
			continue
		}
		t := &Task{Set: b, Change: c, done: make(chan struct{}), markAddressed: func() {}}
		b.tasks[c.Node] = t
		if t.discoversAddress() {
			b.awaitAddresses.Add(1)
			t.markAddressed = sync.OnceFunc(b.awaitAddresses.Done)
		}
		if s.Deferred != nil && s.Deferred(c) {
			later := *t
			t.deferred = &later
			t.Change.Action = changes.Keep
		}
		counts[t.Change.Action]++
	}
	for _, c := range plan.Changes { // in the order of the nodes
		t := b.tasks[c.Node]
		if c.Action == changes.Remove {
			continue
		}
		b.pending.Go(func() {
			t.err = t.Execute(ctx, waitCtx)
			close(t.done) // close done before markAddressed is called, so that AwaitAddresses returns the error of this task
			t.markAddressed()
		})
	}
	b.pending.Go(b.prepareImages)
	b.pending.Go(func() { b.sendPhaseEnd(counts) })
	return b
}

func (b *Set) sendPhaseEnd(counts map[changes.Action]int) {
	failed := 0
	for _, t := range b.tasks {
		if <-t.done; t.err != nil {
			failed++
		}
	}
	text := countActions(counts)
	if failed > 0 {
		text = fmt.Sprintf("%d of %s not ready", failed, event.Count(len(b.tasks), "machine"))
	}
	b.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Provision, Total: len(b.tasks), Failed: failed > 0, Text: text})
}

func countActions(counts map[changes.Action]int) string {
	var parts []string
	for _, a := range []struct {
		action changes.Action
		done   string
	}{
		{changes.Create, "created"}, {changes.Finish, "finished"}, {changes.Recreate, "recreated"},
		{changes.Start, "started"}, {changes.Resume, "resumed"}, {changes.Restart, "restarted"}, {changes.Keep, "kept"},
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

// WaitReady waits until the node's machine is ready or has failed, or ctx ends. It returns at once if nixbench does not manage the
// node's machine.
func (b *Set) WaitReady(ctx context.Context, node string) error {
	t := b.tasks[node]
	if t == nil {
		return nil
	}
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *Set) DeferredAction(node string) changes.Action {
	if t := b.tasks[node]; t != nil && t.deferred != nil {
		return t.deferred.Change.Action
	}
	return ""
}

// ExecuteDeferred executes the deferred task of a node. After it, the node has no deferred task.
func (b *Set) ExecuteDeferred(ctx context.Context, node string) error {
	t := b.tasks[node]
	later := t.deferred
	t.deferred = nil
	return later.Execute(ctx, ctx)
}

func (b *Set) AnyMachineDeferred() bool {
	return slices.ContainsFunc(b.plan.Changes, func(c changes.Change) bool { return b.DeferredAction(c.Node) != "" })
}

// IsKept reports whether the plan does not change the node's machine, or nixbench does not manage the machine.
func (b *Set) IsKept(node string) bool {
	if b.tasks[node] == nil {
		return true
	}
	c, _ := b.plan.ChangeOf(node)
	return c.Action == changes.Keep
}

func (b *Set) AssignsAddresses() bool { return b.plan.AssignsAddresses() }

// AwaitAddresses waits until the address of every machine is discovered, or the machine's task has
// failed. It returns the errors of the tasks that have ended.
func (b *Set) AwaitAddresses() error {
	b.awaitAddresses.Wait()
	var errs []error
	for _, c := range b.plan.Changes {
		if t := b.tasks[c.Node]; t != nil {
			select {
			case <-t.done:
				errs = append(errs, t.err)
			default:
			}
		}
	}
	return errors.Join(errs...)
}

// CreationErrors joins the errors of machines that could not be created. It omits the errors of
// machines that were started and are not ready. The caller must have called AbandonWaits and waited for the tasks.
func (b *Set) CreationErrors() error {
	var errs []error
	for _, c := range b.plan.Changes {
		var failed *BootError
		if t := b.tasks[c.Node]; t != nil && errors.As(t.err, &failed) && !failed.Started {
			errs = append(errs, failed)
		}
	}
	return errors.Join(errs...)
}

// AbandonWaits stops waiting for machines that are not ready. Machines that are being created are still completed. The
// next run waits until the machines are ready.
func (b *Set) AbandonWaits() { b.stopWaiting() }

func (b *Set) Finish() {
	b.pending.Wait()
	b.stopWaiting()
	b.plan.Close()
}

func (b *Set) RemovedNodes() []string { return removedNodes(removals(b.plan.Changes)) }

func removals(all []changes.Change) []changes.Change {
	return slices.DeleteFunc(slices.Clone(all), func(c changes.Change) bool { return c.Action != changes.Remove })
}

// AwaitUnused waits for all tasks. It reports whether images or networks may become unused, because the plan removes or recreates
// machines.
func (b *Set) AwaitUnused() bool {
	b.pending.Wait()
	return slices.ContainsFunc(b.plan.Changes, func(c changes.Change) bool {
		return c.Action == changes.Remove || c.Action == changes.Recreate
	})
}

// RemoveObsolete removes the machines of nodes that the hive no longer contains, and unused images and networks.
func (b *Set) RemoveObsolete(ctx context.Context, record *runs.Recorder) error {
	w := &destroyer{Manager: b.Manager, Store: b.Store, Record: record, parallel: b.Parallel, cluster: b.plan.Cluster, hosts: b.plan.hosts, outcome: Removed}
	if _, err := w.executeRemovals(ctx, removals(b.plan.Changes)); err != nil {
		return err
	}
	return w.removeUnused(ctx)
}
