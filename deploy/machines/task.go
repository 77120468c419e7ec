package machines

import (
	"context"
	"fmt"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/state"
)

// machineTask brings one machine to the state that the plan has for it.
type Task struct {
	*Starter
	plan          *Plan
	prerequisites *prerequisites
	Change        provision.Change
	slots         chan struct{} // limits how many machines are created at once; waiting for readiness takes no slot
	awaitTurn     func()        // waits for the machines that are created first
	markCreated   func()        // reports that this machine is created, or has failed
	markAddressed func()        // reports that the address is known, or cannot be found
}

// execute carries out the change, and waits until the node can be deployed. waitCtx ends the wait
// for readiness; the creation of a machine is completed even then.
func (m *Task) Execute(ctx, waitCtx context.Context) error {
	node := m.Change.Node
	unready := m.Store.State().Unready(node)
	if err := m.prerequisites.prepareFor(m.Change); err != nil {
		return m.creationError(err)
	}
	running := m.Change.Runs()
	if running && !unready && m.plan.Network.Mode.Ours() {
		return nil
	}
	if !running || unready {
		m.Send.Send(event.Event{Kind: event.NodeStart, Phase: event.Boot, Node: node, Text: m.Change.String()})
	}
	// The machine, or its network, was stopped outside nixbench.
	if a := m.Change.Action; a == provision.Start || a == provision.Resume || a == provision.Reconnect {
		m.Send.Send(event.Event{Kind: event.Message, Phase: event.Boot, Node: node, Level: "warning", Text: m.Change.String()})
	}
	begin := time.Now()
	err := m.bringUp(ctx, waitCtx, running, unready)
	if !running || unready {
		text := ""
		if err == nil {
			text = fmt.Sprintf("ready after %s", time.Since(begin).Round(100*time.Millisecond))
		}
		m.Send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Boot, Node: node, Text: text, Failed: err != nil})
	}
	return err
}

func (m *Task) bringUp(ctx, waitCtx context.Context, running, unready bool) error {
	if !running {
		m.awaitTurn()
		if err := m.createOrStart(ctx); err != nil {
			return m.creationError(err)
		}
	}
	m.markCreated()
	limitCtx, cancel := context.WithTimeout(waitCtx, m.bootLimit())
	defer cancel()
	if !m.plan.Network.Mode.Ours() {
		if err := m.discoverAddress(limitCtx, running && !unready); err != nil {
			return m.notReadyError(ctx, err)
		}
		m.markAddressed()
	}
	if running && !unready {
		return nil
	}
	if err := m.waitForSystem(limitCtx); err != nil {
		return m.notReadyError(ctx, err)
	}
	return m.Store.Update(func(s *state.State) error { s.MachineReady(m.Change.Node); return nil })
}

// bootLimit returns how long a machine may take to become ready after its start.
func (m *Task) bootLimit() time.Duration {
	switch {
	case m.BootTimeout > 0:
		return m.BootTimeout
	case m.plan.inventories[m.Change.Hypervisor].Emulated:
		return 10 * time.Minute
	}
	return 5 * time.Minute
}

// createOrStart creates or starts the machine. The intent is written to the state before.
func (m *Task) createOrStart(ctx context.Context) error {
	select {
	case m.slots <- struct{}{}:
		defer func() { <-m.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	host := m.plan.providers[m.Change.Hypervisor]
	image, err := m.prerequisites.imageOf(m.Change)
	if err != nil {
		return err
	}
	spec := m.Change.Spec(image, provision.Identity{})
	if spec.Identity, err = m.machineIdentity(spec); err != nil {
		return err
	}
	node := m.Change.Node
	if err := m.Store.Update(func(s *state.State) error {
		s.Begin(state.Intent{Run: m.RunID, Node: node, Step: state.MakeMachine, Path: string(m.Change.Action), Since: time.Now().UTC()})
		if m.Change.NeedsImage() {
			s.Making(node, m.Change.Hypervisor, stateImage(spec.Image))
		}
		return nil
	}); err != nil {
		return err
	}
	if m.Change.Action == provision.Recreate {
		if err := host.Remove(ctx, m.plan.Cluster, node); err != nil {
			return withHypervisor(err, m.Change.Hypervisor, "remove "+node)
		}
		if err := m.prerequisites.reserveAddresses[m.Change.Hypervisor](); err != nil { // the removal has also released the reservation
			return err
		}
	}
	if err := host.Ensure(ctx, m.plan.Cluster, m.plan.Network, spec); err != nil {
		return withHypervisor(err, m.Change.Hypervisor, string(m.Change.Action)+" "+node)
	}
	if err := m.Store.Update(func(s *state.State) error { s.Made(node, time.Now().UTC()); return nil }); err != nil {
		return err
	}
	m.Fleet.Drop(node) // an old connection is to the machine before this start
	return nil
}

func stateImage(i provision.Image) state.Image {
	return state.Image{Hash: i.Hash, Format: string(i.Format), Kernel: i.Kernel, Initrd: i.Initrd, Cmdline: i.Cmdline}
}
