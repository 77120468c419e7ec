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
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/state"
)

// discoverAddress waits until the hypervisor reports the machine's address, and records the address. wasReady means that the machine
// became ready in an earlier run. Such a machine keeps its recorded address if the hypervisor reports no address.
func (m *Task) discoverAddress(ctx context.Context, wasReady bool) error {
	recorded := m.Store.State().Machines[m.Change.Node].Address
	until, _ := ctx.Deadline()
	wait := m.Send.Wait(event.Event{Node: m.Change.Node, Phase: event.Boot, Text: "an address on network " + m.plan.Network.Name, Until: until})
	defer wait.End()
	for {
		all, err := m.host().Addresses(ctx, m.plan.Cluster, m.Change.Node)
		a := preferredAddress(all)
		if a.IsValid() && a != recorded {
			return m.Store.Update(func(s *state.State) error {
				now := s.Machines[m.Change.Node]
				now.Address = a
				s.Machines[m.Change.Node] = now
				return nil
			})
		}
		if a.IsValid() || wasReady && recorded.IsValid() && ctx.Err() == nil {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			return wrapHypervisorError(err, m.Change.Hypervisor, "find the address of "+m.Change.Node)
		}
		if err := sleep(ctx, time.Second); err != nil {
			return &provider.Error{
				Hypervisor: m.Change.Hypervisor, Node: m.Change.Node, Op: "find its address",
				Err: fmt.Errorf("the hypervisor reports no address for it on network %s: %w", m.plan.Network.Name, err),
				Fix: "check that its system requests an address by DHCP; on a bridge, a virtual machine needs a guest agent (services.qemuGuest.enable = true)",
			}
		}
	}
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

// waitForSystem waits until a machine accepts an SSH login with its pinned host key and its system has started. It
// does not wait for failed systemd units, because the deployment may repair these units.
func waitForSystem(ctx context.Context, h *remote.Host, send event.Sink) error {
	var last error
	for {
		if _, err := h.WaitReachable(ctx); err != nil {
			return preferLastError(ctx, err, last)
		}
		word, err := readSystemState(ctx, h)
		if err == nil && word != "starting" && word != "initializing" {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("its system is still %s", word)
		}
		last = err
		send.Send(event.Event{Kind: event.NodeProgress, Phase: event.Boot, Node: h.Config().Node, Text: err.Error()})
		if err := sleep(ctx, 300*time.Millisecond); err != nil {
			return preferLastError(ctx, err, last)
		}
	}
}

// errShutDown is the error of a machine that has turned off before it was ready.
var errShutDown = errors.New("it is off: its system has shut down during the boot")

const observeEvery = 2 * time.Second

// cancelIfOff watches a machine that is booting. If the machine turns off, it cancels the returned context with errShutDown, so that the
// caller does not wait until the time limit. The machine is off in two observations, because a container is off for a moment while it
// reboots. The caller must call endWatch when it no longer waits for the machine.
func (m *Task) cancelIfOff(ctx context.Context) (watched context.Context, endWatch func()) {
	node := m.Change.Node
	watched, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		for wasOff := false; sleep(watched, observeEvery) == nil; {
			// An error of the hypervisor is ignored, because the machine may become ready all the same.
			states, _ := m.host().States(watched, m.plan.Cluster, []string{node})
			isOff := states[node] == provider.Off
			if wasOff && isOff {
				cancel(failure.WithHint(errShutDown, "nixbench console "+node+" shows what it printed; the next nixbench apply starts it again"))
			}
			wasOff = isOff
		}
	})
	return watched, func() {
		cancel(nil)
		watch.Wait()
	}
}

// preferLastError returns last, the last observed error, if the context has ended; otherwise, or if last is nil, it returns err.
func preferLastError(ctx context.Context, err, last error) error {
	if ctx.Err() != nil && last != nil {
		return last
	}
	return err
}

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
