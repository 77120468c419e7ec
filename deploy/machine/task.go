package machine

import (
	"context"
	"fmt"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
)

type Task struct {
	*Set
	Change        changes.Change
	markAddressed func()        // called when the address of this machine is recorded, or the task has failed
	done          chan struct{} // closed when the task has ended
	err           error         // set before done is closed
	// deferred is the task that is executed later, when the deployment of the node begins. The machine keeps running
	// until then. It is nil if the task is not deferred.
	deferred *Task
}

func (m *Task) discoversAddress() bool { return !m.Change.Address.IsValid() }

func (m *Task) host() provider.Provider { return m.plan.hosts[m.Change.Hypervisor] }

// Execute executes the change, and waits until the node can be deployed. If waitCtx ends, Execute stops waiting, but
// still completes the creation of the machine.
func (m *Task) Execute(ctx, waitCtx context.Context) error {
	node := m.Change.Node
	unready := m.Store.State().HasIntent(node, state.MakeMachine)
	if _, err := m.prerequisites.prepareFor(m.Change); err != nil {
		return &BootError{Node: node, Err: err}
	}
	running := m.Change.Action == changes.Keep
	if running && !unready && !m.discoversAddress() {
		return nil
	}
	if !running || unready {
		m.Send.Send(event.Event{Kind: event.NodeStart, Phase: event.Boot, Node: node, Text: m.Change.String()})
	}
	// These changes mean that another program has stopped the machine, so warn the user.
	if a := m.Change.Action; a == changes.Start || a == changes.Resume {
		m.Send.Send(event.Event{Kind: event.Message, Phase: event.Boot, Node: node, Level: "warning", Text: m.Change.String()})
	}
	begin := time.Now()
	err := m.bootUntilReady(ctx, waitCtx, running, unready)
	if !running || unready {
		text := ""
		if err == nil {
			text = fmt.Sprintf("ready after %s", time.Since(begin).Round(100*time.Millisecond))
		}
		m.Send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Boot, Node: node, Text: text, Failed: err != nil})
	}
	return err
}

// bootUntilReady creates or starts the machine, and waits until it is ready. If running is set, the machine already runs and is not
// started. If running is set and unready is not, the machine was ready in an earlier run, and bootUntilReady does not wait.
func (m *Task) bootUntilReady(ctx, waitCtx context.Context, running, unready bool) error {
	if !running {
		if err := m.createOrStartMachine(ctx); err != nil {
			return &BootError{Node: m.Change.Node, Err: err}
		}
	}
	began := time.Now()
	limitCtx, cancel := context.WithTimeout(waitCtx, m.bootTimeLimit())
	defer cancel()
	if !running || unready {
		watched, endWatch := m.cancelIfOff(limitCtx)
		defer endWatch()
		limitCtx = watched
	}
	if m.discoversAddress() {
		if err := m.discoverAddress(limitCtx, running && !unready); err != nil {
			return m.newNotReadyError(ctx, time.Since(began), err)
		}
		m.markAddressed()
	}
	if running && !unready {
		return nil
	}
	h, err := m.Fleet.Host(limitCtx, nodeOf(m.Hive, m.Change.Node))
	if err == nil {
		err = waitForSystem(limitCtx, h, m.Send)
	}
	if err != nil {
		return m.newNotReadyError(ctx, time.Since(began), err)
	}
	return m.Store.Update(func(s *state.State) error { s.DropIntents(m.Change.Node, state.MakeMachine); return nil })
}

// bootTimeLimit returns how long a machine may take to become ready after its start.
func (m *Task) bootTimeLimit() time.Duration {
	switch {
	case m.BootTimeout > 0:
		return m.BootTimeout
	case m.plan.inventories[m.Change.Hypervisor].Emulated:
		return 10 * time.Minute
	}
	return 5 * time.Minute
}

func (m *Task) createOrStartMachine(ctx context.Context) error {
	select {
	case m.slots <- struct{}{}:
		defer func() { <-m.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	image, err := m.prerequisites.prepareFor(m.Change)
	if err != nil {
		return err
	}
	spec := m.Change.Spec(image, provider.Identity{})
	if spec.Identity, err = m.machineIdentity(spec); err != nil {
		return err
	}
	node := m.Change.Node
	if err := m.Store.Update(func(s *state.State) error {
		s.Begin(state.Intent{Run: m.RunID, Node: node, Step: state.MakeMachine, Path: string(m.Change.Action), Since: time.Now().UTC()})
		if m.Change.Creates() {
			s.RecordPlannedMachine(node, m.Change.Hypervisor, spec.Image)
		}
		return nil
	}); err != nil {
		return err
	}
	if m.Change.Action == changes.Recreate {
		if err := m.host().Remove(ctx, m.plan.Cluster, node); err != nil {
			return wrapHypervisorError(err, m.Change.Hypervisor, "remove "+node)
		}
	}
	if err := m.host().Ensure(ctx, m.plan.Cluster, m.plan.Network, spec); err != nil {
		return wrapHypervisorError(err, m.Change.Hypervisor, string(m.Change.Action)+" "+node)
	}
	if err := m.Store.Update(func(s *state.State) error { s.RecordCreationTime(node, time.Now().UTC()); return nil }); err != nil {
		return err
	}
	m.Fleet.Drop(node) // close the SSH connection, because it was made before the machine was started
	return nil
}
