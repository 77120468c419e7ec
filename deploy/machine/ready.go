package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// discoverAddress waits until the hypervisor reports the machine's address, and records the address. wasReady means that the machine
// became ready in an earlier run. Such a machine keeps its recorded address if the hypervisor reports no address.
func (m *Task) discoverAddress(ctx context.Context, wasReady bool) error {
	d, ok := m.plan.hosts[m.Change.Hypervisor].(provider.Discoverer)
	if !ok {
		return &provider.Error{Hypervisor: m.Change.Hypervisor, Node: m.Change.Node, Op: "find its address", Err: errors.New("this kind of hypervisor does not report addresses")}
	}
	recorded := m.Store.State().Machines[m.Change.Node].Address
	until, _ := ctx.Deadline()
	wait := m.Send.Wait(event.Event{Node: m.Change.Node, Phase: event.Boot, Text: "an address on network " + m.plan.Network.Name, Until: until})
	defer wait.End()
	for {
		all, err := d.Addresses(ctx, m.plan.Cluster, m.Change.Node)
		if a := preferredAddress(all); a.IsValid() {
			return m.recordAddress(a)
		}
		if wasReady && recorded.IsValid() && ctx.Err() == nil {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			return wrapHypervisorError(err, m.Change.Hypervisor, "find the address of "+m.Change.Node)
		}
		if err := sleep(ctx, time.Second); err != nil {
			err = fmt.Errorf("the hypervisor reports no address for it on network %s: %w", m.plan.Network.Name, err)
			return &provider.Error{Hypervisor: m.Change.Hypervisor, Node: m.Change.Node, Op: "find its address", Err: err, Fix: m.describeAddressFix()}
		}
	}
}

// describeAddressFix returns what the user can do if the hypervisor reports no address of the machine.
func (m *Task) describeAddressFix() string {
	if m.plan.Network.Mode != provider.Bridge {
		return ""
	}
	return "check that its system requests an address by DHCP on bridge " + m.plan.Network.Bridge +
		"; a virtual machine with a guest agent reports its address (services.qemuGuest.enable = true); the address of others is discovered from their traffic with the hypervisor or with this machine"
}

// preferredAddress returns the first IPv4 address that other hosts can reach, or else the first IPv6 address. It
// prefers IPv4, because an IPv4 address needs no zone, such as %eth0.
func preferredAddress(all []netip.Addr) netip.Addr {
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

// recordAddress writes the address of the machine to the state, unless this address is already recorded.
func (m *Task) recordAddress(a netip.Addr) error {
	if m.Store.State().Machines[m.Change.Node].Address != a {
		if err := m.Store.Update(func(s *state.State) error {
			machine := s.Machines[m.Change.Node]
			machine.Address = a
			s.Machines[m.Change.Node] = machine
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// waitForSystem waits until the machine accepts an SSH login with its pinned host key and its system has started. It
// does not wait for failed systemd units, because the deployment may repair these units.
func (m *Task) waitForSystem(ctx context.Context) error {
	h, err := m.Fleet.Host(ctx, nixeval.Node{Name: m.Change.Node, Role: m.Change.Role, Unit: m.unitOf()})
	if err != nil {
		return err
	}
	return waitForSystem(ctx, h, m.usesCloudInit(), m.Send)
}

// waitForSystem waits until a machine accepts an SSH login and its system has started. If usesCloudInit is set, a wrong
// host key is no failure until ctx ends.
func waitForSystem(ctx context.Context, h *remote.Host, usesCloudInit bool, send event.Sink) error {
	var last error
	for {
		if _, err := h.WaitReachable(ctx); err != nil {
			// If the image uses cloud-init, a wrong host key is no failure yet: cloud-init installs the pinned host key
			// late in the boot. Until then, sshd uses the host key of the image.
			if !usesCloudInit || ctx.Err() != nil {
				return preferLastError(ctx, err, last)
			}
			last = err
		} else {
			word, err := readSystemState(ctx, h)
			if err == nil && word != "starting" && word != "initializing" {
				return nil
			}
			if err == nil {
				err = fmt.Errorf("its system is still %s", word)
			}
			last = err
			send.Send(event.Event{Kind: event.NodeProgress, Phase: event.Boot, Node: h.Config().Node, Text: err.Error()})
		}
		if err := sleep(ctx, 300*time.Millisecond); err != nil {
			return preferLastError(ctx, err, last)
		}
	}
}

// startAgainIfOff watches a machine that is booting. If the machine turns off, it is started once more, because some systems shut down
// at the end of their first boot. If the machine turns off a second time, the context watched is cancelled, so that the caller does not
// wait until the time limit. The caller must call endWatch when it no longer waits for the machine.
func (m *Task) startAgainIfOff(ctx context.Context) (watched context.Context, endWatch func()) {
	host := m.plan.hosts[m.Change.Hypervisor]
	power, ok := host.(provider.Power)
	if !ok {
		return ctx, func() {}
	}
	watched, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		node := m.Change.Node
		startedAgain := false
		for sleep(watched, observeEvery) == nil {
			// An error of the hypervisor is ignored, because the machine may become ready all the same.
			states, _ := power.States(watched, m.plan.Cluster, []string{node})
			if states[node] != provider.Off || watched.Err() != nil {
				continue
			}
			if startedAgain {
				cancel(errShutDownTwice)
				return
			}
			startedAgain = true
			m.Send.Send(event.Event{Kind: event.Message, Phase: event.Boot, Node: node, Level: "warning", Text: node + ": its system has shut down during the boot, so its machine is started once more"})
			if err := power.Start(watched, m.plan.Cluster, node); err != nil {
				cancel(wrapHypervisorError(err, m.Change.Hypervisor, "start "+node+" once more"))
				return
			}
		}
	})
	return watched, func() {
		cancel(nil)
		watch.Wait()
	}
}

var errShutDownTwice = errors.New("it is off: its system has shut down twice")

// observeEvery is the time between two observations of a machine that is booting.
const observeEvery = 2 * time.Second

// preferLastError returns last, the last observed error, if the context has ended; otherwise, or if last is nil, it
// returns err.
func preferLastError(ctx context.Context, err, last error) error {
	if ctx.Err() != nil && last != nil {
		return last
	}
	return err
}

func (m *Task) usesCloudInit() bool {
	return m.Hive.Roles[m.Change.Role].Identity == string(provider.CloudInit)
}

func (m *Task) unitOf() string {
	for _, n := range m.Hive.Nodes {
		if n.Name == m.Change.Node {
			return n.Unit
		}
	}
	return m.Change.Node
}

// readSystemState returns the output of systemctl is-system-running on the machine, such as running or degraded.
func readSystemState(ctx context.Context, h *remote.Host) (string, error) {
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

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
