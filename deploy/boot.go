package deploy

import (
	"context"
	"fmt"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/state"
)

// booting is one machine on its way.
type booting struct {
	*run
	g         *ground
	f         *footing
	c         provision.Change
	client    state.Key
	slots     chan struct{} // so many machines are made at once; waiting for them costs nothing
	turn      func()        // waits for those that are to be made before
	made      func()        // nobody need wait for this one any more
	addressed func()        // the machine's address is known, or will not be
}

// through brings the machine to where its node can be deployed. waiting ends when nobody cares any
// more whether it becomes ready; what is being made is finished all the same.
func (m *booting) through(ctx, waiting context.Context) error {
	node := m.c.Node
	fresh := m.Store.State().Unready(node)
	if err := m.f.ready(m.c); err != nil {
		return m.failed(err)
	}
	runs := m.c.Runs()
	if runs && !fresh && m.g.Network.Mode.Ours() {
		return nil
	}
	if !runs || fresh {
		m.Send.Send(event.Event{Kind: event.NodeStart, Phase: event.Boot, Node: node, Text: m.c.String()})
	}
	// Somebody or something has stopped it, or its network.
	if a := m.c.Action; a == provision.Start || a == provision.Resume || a == provision.Reconnect {
		m.Send.Send(event.Event{Kind: event.Message, Phase: event.Boot, Node: node, Level: "warning", Text: m.c.String()})
	}
	begin := time.Now()
	err := m.bring(ctx, waiting, runs, fresh)
	if !runs || fresh {
		text := ""
		if err == nil {
			text = fmt.Sprintf("ready after %s", time.Since(begin).Round(100*time.Millisecond))
		}
		m.Send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Boot, Node: node, Text: text, Failed: err != nil})
	}
	return err
}

func (m *booting) bring(ctx, waiting context.Context, runs, fresh bool) error {
	if !runs {
		m.turn()
		if err := m.make(ctx); err != nil {
			return m.failed(err)
		}
	}
	m.made()
	limit, cancel := context.WithTimeout(waiting, m.patience())
	defer cancel()
	if !m.g.Network.Mode.Ours() {
		if err := m.discover(limit, runs && !fresh); err != nil {
			return m.unready(ctx, err)
		}
		m.addressed()
	}
	if runs && !fresh {
		return nil
	}
	if err := m.responds(limit); err != nil {
		return m.unready(ctx, err)
	}
	return m.Store.Update(func(s *state.State) error { s.MachineReady(m.c.Node); return nil })
}

// patience is how long a machine may take from its start.
func (m *booting) patience() time.Duration {
	switch {
	case m.BootTimeout > 0:
		return m.BootTimeout
	case m.g.sites[m.c.Hypervisor].Emulated:
		return 10 * time.Minute
	}
	return 5 * time.Minute
}

// make makes the machine, or starts it. The state knows of it before it is there.
func (m *booting) make(ctx context.Context) error {
	select {
	case m.slots <- struct{}{}:
		defer func() { <-m.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	host := m.g.hosts[m.c.Hypervisor]
	image, err := m.f.imageOf(m.c)
	if err != nil {
		return err
	}
	spec := m.c.Spec(image, provision.Identity{})
	if spec.Identity, err = m.identity(spec); err != nil {
		return err
	}
	node := m.c.Node
	if err := m.Store.Update(func(s *state.State) error {
		s.Begin(state.Intent{Run: m.Record.ID(), Node: node, Step: state.MakeMachine, Path: string(m.c.Action), Since: time.Now().UTC()})
		if m.c.NeedsImage() {
			s.Making(node, m.c.Hypervisor, imageState(spec.Image))
		}
		return nil
	}); err != nil {
		return err
	}
	if m.c.Action == provision.Recreate {
		if err := host.Remove(ctx, m.g.Cluster, node); err != nil {
			return withHypervisor(err, m.c.Hypervisor, "remove "+node)
		}
		if err := m.f.reserve[m.c.Hypervisor](); err != nil { // which went with it
			return err
		}
	}
	if err := host.Ensure(ctx, m.g.Cluster, m.g.Network, spec); err != nil {
		return withHypervisor(err, m.c.Hypervisor, string(m.c.Action)+" "+node)
	}
	if err := m.Store.Update(func(s *state.State) error { s.Made(node, time.Now().UTC()); return nil }); err != nil {
		return err
	}
	m.Fleet.Drop(node) // a connection from before leads nowhere
	m.know()
	return nil
}

// know tells the fleet what the state knows by now.
func (m *booting) know() { m.Fleet.Know(m.Machines.Dir.ClientKey(), m.Store.State()) }

func imageState(i provision.Image) state.Image {
	return state.Image{Hash: i.Hash, Format: string(i.Format), Kernel: i.Kernel, Initrd: i.Initrd, Cmdline: i.Cmdline}
}
