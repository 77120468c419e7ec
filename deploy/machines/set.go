package machines

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/nixbench/nixbench/deploy/fleet"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/state"
)

// machineSet is the machines of a run. Each of them becomes ready independently of the others.
type Set struct {
	starter        *Starter
	plan           *Plan
	results        map[string]*machineResult
	awaitAddresses sync.WaitGroup     // tasks of machines whose address is not discovered yet
	pending        sync.WaitGroup     // all tasks, and the goroutines that report about them
	stopWaiting    context.CancelFunc // ends the wait for machines that were started
}

type machineResult struct {
	done chan struct{}
	err  error
	// deferred is the task to carry out when the node's wave begins. Until then the machine runs on.
	deferred *Task
}

// ClearDeferred removes the deferred task of a node after it was carried out.
func (b *Set) ClearDeferred(node string) { b.results[node].deferred = nil }

// RemovedNodes returns the nodes whose last machine the plan removes.
func (b *Set) RemovedNodes() []string {
	if b == nil {
		return nil
	}
	var out []string
	for _, c := range b.plan.Changes {
		if c.Action == provision.Remove && !b.plan.HasMachine(c.Node) {
			out = append(out, c.Node)
		}
	}
	return out
}

// deferredTask returns the machine's task to carry out when the node's wave begins, or nil.
func (b *Set) DeferredTask(node string) *Task {
	if b == nil || b.results[node] == nil {
		return nil
	}
	return b.results[node].deferred
}

// waitReady waits until the node's machine is ready or has failed. It returns at once for a
// node without a machine of ours.
func (b *Set) WaitReady(node string) error {
	if b == nil || b.results[node] == nil {
		return nil
	}
	<-b.results[node].done
	return b.results[node].err
}

// finish waits for all tasks and closes the connections to the hypervisors.
func (b *Set) Finish() {
	if b == nil {
		return
	}
	b.pending.Wait()
	b.stopWaiting()
	b.plan.Close()
}

// AssignsAddresses reports whether the addresses of the machines were known before they were started.
func (b *Set) AssignsAddresses() bool { return b.plan.Network.Mode.Ours() }

// AwaitAddresses waits until the address of every machine is discovered, or its task has failed. It
// returns the errors of the tasks that have ended.
func (b *Set) AwaitAddresses() error {
	b.awaitAddresses.Wait()
	return b.bootErrors()
}

// Obsolete waits for all tasks, and returns the machines that the plan removes. unused reports whether
// the plan leaves images or networks without a machine.
func (b *Set) Obsolete() (obsolete []Removal, unused bool) {
	if b == nil {
		return nil, false
	}
	b.pending.Wait()
	for _, c := range b.plan.Changes {
		if c.Action == provision.Remove {
			obsolete = append(obsolete, Removal{Node: c.Node, Role: c.Role, Hypervisor: c.Hypervisor, duplicate: b.plan.HasMachine(c.Node)})
		}
		unused = unused || c.Action == provision.Remove || c.Action == provision.Recreate
	}
	return obsolete, unused
}

// RemoveObsolete removes machines, and then the images and networks that no machine uses.
func (b *Set) RemoveObsolete(ctx context.Context, record *state.Recorder, obsolete []Removal) error {
	w := &destroyer{Manager: b.starter.Manager, Store: b.starter.Store, Record: record, parallel: b.starter.Parallel, cluster: b.plan.Cluster, hosts: b.plan.providers, outcome: Removed}
	if _, err := w.removeAll(ctx, obsolete); err != nil {
		return err
	}
	return w.cleanUp(ctx)
}

// bootErrors joins the errors of the tasks that have ended so far.
func (b *Set) bootErrors() error {
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

// Start starts a task for every machine of the plan, and does not wait for them.
func (s *Starter) Start(ctx context.Context, plan *Plan) *Set {
	b := &Set{starter: s, plan: plan, results: map[string]*machineResult{}}
	var waitCtx context.Context
	waitCtx, b.stopWaiting = context.WithCancel(ctx)
	f := s.newPrerequisites(ctx, plan)
	workers := s.Parallel
	if workers <= 0 {
		workers = len(plan.Changes) + 1
	}
	slots := make(chan struct{}, workers)
	counts := map[provision.Action]int{}
	var leaders sync.WaitGroup
	var all []*Task
	for _, c := range plan.Changes {
		if c.Action == provision.Remove {
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
			m.Change.Action = provision.Keep
		}
		counts[m.Change.Action]++
		if s.hostsEndpoint(c) {
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
			close(result.done) // before markAddressed, so that a caller that waits for addresses sees the error
			m.markAddressed()
		})
	}
	b.pending.Go(f.prepareImages)
	s.reportBoots(b, counts)
	return b
}

// hostsEndpoint reports whether the node has the role of the cluster's endpoint. Its machine is made
// first: the other nodes wait for the API there, and its disk would wait for their disks.
func (s *Starter) hostsEndpoint(c provision.Change) bool {
	cluster := s.Hive.Cluster
	return cluster != nil && cluster.Endpoint != nil && cluster.Endpoint.Role != nil && *cluster.Endpoint.Role == c.Role
}

// reportBoots ends the phase when every machine is ready or has failed.
func (s *Starter) reportBoots(b *Set, counts map[provision.Action]int) {
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

// abandonWaits ends the wait for machines that are not ready. Machines that are being created
// are completed, and the next run waits until they are ready.
func (b *Set) AbandonWaits() {
	if b != nil {
		b.stopWaiting()
	}
}

// readyChannel returns a channel that is closed when the node's machine is ready or has failed;
// nil for a node without a machine of ours.
func (b *Set) ReadyChannel(node string) <-chan struct{} {
	if b == nil || b.results[node] == nil {
		return nil
	}
	return b.results[node].done
}

// isKept reports whether the node needs no machine task: nixbench does not boot it, or its machine
// is kept as it is.
func (b *Set) IsKept(node string) bool {
	return b == nil || b.results[node] == nil || slices.ContainsFunc(b.plan.Changes, func(c provision.Change) bool {
		return c.Node == node && c.Action == provision.Keep
	})
}

// creationErrors joins the errors of machines that could not be created. It leaves out machines
// that were started but are not ready.
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

// anyMachineDeferred reports whether a machine waits for its node's turn.
func (b *Set) AnyMachineDeferred() bool {
	return b != nil && slices.ContainsFunc(slices.Sorted(maps.Keys(b.results)), func(node string) bool { return b.results[node].deferred != nil })
}
