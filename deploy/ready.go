package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// discover finds out the machine's address. One that runs for long may keep the
// one that we know, if nobody tells.
func (m *booting) discover(ctx context.Context, longAgo bool) error {
	d, ok := m.g.hosts[m.c.Hypervisor].(provision.Discoverer)
	if !ok {
		return &provision.Error{Hypervisor: m.c.Hypervisor, Node: m.c.Node, Op: "find its address", Err: errors.New("this kind of hypervisor cannot tell")}
	}
	known := m.Store.State().Machines[m.c.Node].Address
	until, _ := ctx.Deadline()
	wait := m.Send.Wait(event.Event{Node: m.c.Node, Phase: event.Boot, Text: "an address on network " + m.g.Network.Name, Until: until})
	defer wait.End()
	for {
		all, err := d.Addresses(ctx, m.g.Cluster, m.c.Node)
		if a := reachable(all); a.IsValid() {
			return m.found(a)
		}
		if longAgo && known.IsValid() && ctx.Err() == nil {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			return withHypervisor(err, m.c.Hypervisor, "find the address of "+m.c.Node)
		}
		if err := pause(ctx, time.Second); err != nil {
			err = fmt.Errorf("it has got no address on network %s, as far as the hypervisor knows: %w", m.g.Network.Name, err)
			return &provision.Error{Hypervisor: m.c.Hypervisor, Node: m.c.Node, Op: "find its address", Err: err, Fix: m.unseen()}
		}
	}
}

// unseen says how a machine's address could be seen.
func (m *booting) unseen() string {
	if m.g.Network.Mode != provision.Bridge {
		return ""
	}
	return "see that its system asks for an address by DHCP on bridge " + m.g.Network.Bridge +
		"; a virtual machine with a guest agent tells it (services.qemuGuest.enable = true), others are seen where they talk to the hypervisor or to this machine"
}

// reachable prefers IPv4, since it needs no zone.
func reachable(all []netip.Addr) netip.Addr {
	var best netip.Addr
	for _, a := range all {
		if a.IsLoopback() || a.IsLinkLocalUnicast() || !a.IsValid() {
			continue
		}
		if !best.IsValid() || a.Is4() && !best.Is4() {
			best = a
		}
	}
	return best
}

func (m *booting) found(a netip.Addr) error {
	if m.Store.State().Machines[m.c.Node].Address != a {
		if err := m.Store.Update(func(s *state.State) error {
			machine := s.Machines[m.c.Node]
			machine.Address = a
			s.Machines[m.c.Node] = machine
			return nil
		}); err != nil {
			return err
		}
	}
	m.know()
	return nil
}

// responds waits until the machine lets us in, under its pinned key, and its system has
// come up. Units that failed are no reason to wait: a deploy may be what mends them.
func (m *booting) responds(ctx context.Context) error {
	h, err := m.Fleet.Host(ctx, nixeval.Node{Name: m.c.Node, Role: m.c.Role, Unit: m.unit()})
	if err != nil {
		return err
	}
	var last error
	for {
		if _, err := h.WaitReachable(ctx); err != nil {
			// cloud-init brings keys late: until then the image's own are shown.
			if !m.late() || ctx.Err() != nil {
				return latest(ctx, err, last)
			}
			last = err
		} else {
			word, err := m.word(ctx, h)
			if err == nil && word != "starting" && word != "initializing" {
				return nil
			}
			if err == nil {
				err = fmt.Errorf("its system is still %s", word)
			}
			last = err
			m.Send.Send(event.Event{Kind: event.NodeProgress, Phase: event.Boot, Node: m.c.Node, Text: err.Error()})
		}
		if err := pause(ctx, 300*time.Millisecond); err != nil {
			return latest(ctx, err, last)
		}
	}
}

// latest prefers what was seen last to a deadline.
func latest(ctx context.Context, err, last error) error {
	if ctx.Err() != nil && last != nil {
		return last
	}
	return err
}

func (m *booting) late() bool {
	return m.hive.Roles[m.c.Role].Identity == string(provision.CloudInit)
}

func (m *booting) unit() string {
	for _, n := range m.hive.Nodes {
		if n.Name == m.c.Node {
			return n.Unit
		}
	}
	return m.c.Node
}

// word is systemd's for the state of the system.
func (m *booting) word(ctx context.Context, h *remote.Host) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var out bytes.Buffer
	err := h.Run(ctx, remote.Cmd{Argv: []string{"systemctl", "is-system-running"}, Stdout: &out})
	var exit *remote.RunError
	if err != nil && !errors.As(err, &exit) {
		return "", err
	}
	return strings.TrimSpace(out.String()), nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
