package machine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/state/runs"
)

// Set is the machines of a run. Each machine becomes ready independently of the other machines.
type Set struct {
	starter        *Starter
	plan           *OpenPlan
	results        map[string]*machineResult // by node
	awaitAddresses sync.WaitGroup            // waits until the address of every machine is discovered, or the machine's task has ended
	pending        sync.WaitGroup            // waits for all goroutines: the tasks, the preparation of images, the report of the phase's end
	stopWaiting    context.CancelFunc        // ends the waiting for machines that were started and are not ready yet
}

// machineResult is the result of a machine's task.
type machineResult struct {
	done chan struct{} // closed when the task has ended
	err  error         // set before done is closed
	// deferred is the task that is executed later, when the deployment of the node begins. The machine keeps running
	// until then. It is nil if the task is not deferred.
	deferred *Task
}

// ClearDeferred removes the deferred task of a node. The caller has executed the task.
func (b *Set) ClearDeferred(node string) { b.results[node].deferred = nil }

// RemovedNodes returns the nodes that have no machine after the plan's removals.
func (b *Set) RemovedNodes() []string {
	if b == nil {
		return nil
	}
	var out []string
	for _, c := range b.plan.Changes {
		if c.Action == changes.Remove && !b.plan.HasMachine(c.Node) {
			out = append(out, c.Node)
		}
	}
	return out
}

// DeferredTask returns the task that the caller must execute when the deployment of the node begins; nil if there is none.
func (b *Set) DeferredTask(node string) *Task {
	if b == nil || b.results[node] == nil {
		return nil
	}
	return b.results[node].deferred
}

// WaitReady waits until the node's machine is ready or has failed. It returns at once if nixbench does not manage the
// node's machine.
func (b *Set) WaitReady(node string) error {
	if b == nil || b.results[node] == nil {
		return nil
	}
	<-b.results[node].done
	return b.results[node].err
}

// Finish waits for all tasks and closes the connections to the hypervisors.
func (b *Set) Finish() {
	if b == nil {
		return
	}
	b.pending.Wait()
	b.stopWaiting()
	b.plan.Close()
}

// AssignsAddresses reports whether nixbench assigns the addresses of the machines, so that they are known before the
// machines start.
func (b *Set) AssignsAddresses() bool { return b.plan.Network.Mode.Ours() }

// AwaitAddresses waits until the address of every machine is discovered, or the machine's task has
// failed. It returns the errors of the tasks that have ended.
func (b *Set) AwaitAddresses() error {
	b.awaitAddresses.Wait()
	return b.joinTaskErrors()
}

// Obsolete waits for all tasks, and returns the machines that the plan removes. unused reports whether images or
// networks may become unused, because the plan removes or recreates machines.
func (b *Set) Obsolete() (obsolete []Removal, unused bool) {
	if b == nil {
		return nil, false
	}
	b.pending.Wait()
	for _, c := range b.plan.Changes {
		if c.Action == changes.Remove {
			obsolete = append(obsolete, Removal{Node: c.Node, Role: c.Role, Hypervisor: c.Hypervisor, State: c.State, duplicate: b.plan.HasMachine(c.Node)})
		}
		unused = unused || c.Action == changes.Remove || c.Action == changes.Recreate
	}
	return obsolete, unused
}

// RemoveObsolete removes machines, and then the images and networks that no machine uses.
func (b *Set) RemoveObsolete(ctx context.Context, record *runs.Recorder, obsolete []Removal) error {
	w := &destroyer{Manager: b.starter.Manager, Store: b.starter.Store, Record: record, parallel: b.starter.Parallel, cluster: b.plan.Cluster, hosts: b.plan.hosts, outcome: Removed}
	if _, err := w.executeRemovals(ctx, obsolete); err != nil {
		return err
	}
	return w.removeUnused(ctx)
}

// joinTaskErrors joins the errors of the tasks that have ended so far.
func (b *Set) joinTaskErrors() error {
	var errs []error
	for _, c := range b.plan.Changes {
		if result := b.results[c.Node]; result != nil {
			select {
			case <-result.done:
				errs = append(errs, result.err)
			default:
			}
		}
	}
	return errors.Join(errs...)
}

// Start starts a task for every machine of the plan, and does not wait for the tasks.
func (s *Starter) Start(ctx context.Context, plan *OpenPlan) *Set {
	b := &Set{starter: s, plan: plan, results: map[string]*machineResult{}}
	var waitCtx context.Context
	waitCtx, b.stopWaiting = context.WithCancel(ctx)
	f := s.newPrerequisites(ctx, plan)
	workers := s.Parallel
	if workers <= 0 {
		workers = len(plan.Changes) + 1
	}
	slots := make(chan struct{}, workers)
	counts := map[changes.Action]int{}
	var leaders sync.WaitGroup
	var all []*Task
	for _, c := range plan.Changes {
		if c.Action == changes.Remove {
			continue
		}
		result := &machineResult{done: make(chan struct{})}
		b.results[c.Node] = result
		if !plan.Network.Mode.Ours() {
			b.awaitAddresses.Add(1)
		}
		m := &Task{Starter: s, plan: plan, prerequisites: f, Change: c, slots: slots, awaitTurn: leaders.Wait, markCreated: func() {}, markAddressed: sync.OnceFunc(func() {
			if !plan.Network.Mode.Ours() {
				b.awaitAddresses.Done()
			}
		})}
		if s.Deferred != nil && s.Deferred(c) {
			later := *m
			result.deferred = &later
			m.Change.Action = changes.Keep
		}
		counts[m.Change.Action]++
		if s.hasEndpointRole(c) {
			leaders.Add(1)
			m.awaitTurn, m.markCreated = func() {}, sync.OnceFunc(leaders.Done)
		}
		all = append(all, m)
	}
	for _, m := range all {
		result := b.results[m.Change.Node]
		b.pending.Go(func() {
			result.err = m.Execute(ctx, waitCtx)
			m.markCreated()
			close(result.done) // close done before markAddressed is called, so that AwaitAddresses returns the error of this task
			m.markAddressed()
		})
	}
	b.pending.Go(f.prepareImages)
	s.sendPhaseEnd(b, counts)
	return b
}

// hasEndpointRole reports whether the node has the role whose nodes serve the cluster's API, such as control-plane. The
// machines of this role are created first, because the other nodes wait for the API. If all disks were created at the
// same time, the disks of this role would be complete later.
func (s *Starter) hasEndpointRole(c changes.Change) bool {
	cluster := s.Hive.Cluster
	return cluster != nil && cluster.Endpoint != nil && cluster.Endpoint.Role != nil && *cluster.Endpoint.Role == c.Role
}

// sendPhaseEnd sends the end of the provision phase when every machine is ready or has failed. It does not wait.
func (s *Starter) sendPhaseEnd(b *Set, counts map[changes.Action]int) {
	b.pending.Go(func() {
		for _, result := range b.results {
			<-result.done
		}
		failed := 0
		for _, result := range b.results {
			if result.err != nil {
				failed++
			}
		}
		text := countActions(counts)
		if failed > 0 {
			text = fmt.Sprintf("%d of %s not ready", failed, fleet.Count(len(b.results), "machine"))
		}
		s.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Provision, Total: len(b.results), Failed: failed > 0, Text: text})
	})
}

// countActions formats the number of machines per action: `2 created, 1 kept`.
func countActions(counts map[changes.Action]int) string {
	var parts []string
	for _, a := range []struct {
		action changes.Action
		done   string
	}{
		{changes.Create, "created"}, {changes.Finish, "finished"}, {changes.Recreate, "recreated"},
		{changes.Start, "started"}, {changes.Resume, "resumed"}, {changes.Restart, "restarted"}, {changes.Reconnect, "reconnected"}, {changes.Keep, "kept"},
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

// AbandonWaits stops waiting for machines that are not ready. Machines that are being created are still completed. The
// next run waits until the machines are ready.
func (b *Set) AbandonWaits() {
	if b != nil {
		b.stopWaiting()
	}
}

// readyChannel returns a channel that is closed when the node's machine is ready or has failed;
// nil if nixbench does not manage the node's machine.
func (b *Set) ReadyChannel(node string) <-chan struct{} {
	if b == nil || b.results[node] == nil {
		return nil
	}
	return b.results[node].done
}

// IsKept reports whether the plan does not change the node's machine, or nixbench does not manage the machine.
func (b *Set) IsKept(node string) bool {
	return b == nil || b.results[node] == nil || slices.ContainsFunc(b.plan.Changes, func(c changes.Change) bool {
		return c.Node == node && c.Action == changes.Keep
	})
}

// CreationErrors joins the errors of machines that could not be created. It omits the errors of
// machines that were started and are not ready.
func (b *Set) CreationErrors() error {
	if b == nil {
		return nil
	}
	var errs []error
	for _, c := range b.plan.Changes {
		var failed *BootError
		if result := b.results[c.Node]; result != nil && errors.As(result.err, &failed) && !failed.Started {
			errs = append(errs, failed)
		}
	}
	return errors.Join(errs...)
}

// AnyMachineDeferred reports whether a machine has a deferred task, which is executed when the deployment of its node begins.
func (b *Set) AnyMachineDeferred() bool {
	return b != nil && slices.ContainsFunc(slices.Sorted(maps.Keys(b.results)), func(node string) bool { return b.results[node].deferred != nil })
}
