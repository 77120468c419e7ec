package machine

import (
	"context"
	"errors"
	"io"

	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
)

// Console is the console of a node's machine.
type Console struct {
	node     string
	machine  state.Machine
	cluster  provider.Cluster
	hosts    hypervisors
	provider provider.Provider
}

// OpenConsole connects to the hypervisor that has the node's machine, according to the state. The caller closes the
// result.
func (m *Manager) OpenConsole(ctx context.Context, recorded *state.State, node string) (*Console, error) {
	machine, exists := recorded.Machines[node]
	if !exists || recorded.Cluster == nil {
		return nil, &provider.Error{Node: node, Op: "connect to the console", Err: errors.New("its machine has not been booted yet"), Fix: "nixbench apply boots it"}
	}
	where := map[string]state.Hypervisor{machine.Hypervisor: recorded.Cluster.Hypervisors[machine.Hypervisor]}
	hosts, err := connectHypervisors(ctx, m.Open, where, m.Send)
	if err != nil {
		hosts.close()
		return nil, err
	}
	return &Console{node: node, machine: machine, cluster: m.clusterIdentity(recorded), hosts: hosts, provider: hosts[machine.Hypervisor]}, nil
}

// Close closes the connection to the hypervisor.
func (c *Console) Close() { c.hosts.close() }

// Tail returns the end of the console log, at most about max bytes.
func (c *Console) Tail(ctx context.Context, max int) (string, error) {
	log, ok := c.provider.(provider.Console)
	if !ok {
		return "", c.newUnsupportedError("it keeps no console logs")
	}
	return log.ConsoleTail(ctx, c.cluster, c.node, max)
}

// Attach connects the console to the user, see [provider.Terminal].
func (c *Console) Attach(ctx context.Context, in <-chan []byte, out io.Writer) error {
	terminal, ok := c.provider.(provider.Terminal)
	if !ok {
		return c.newUnsupportedError("it has no consoles")
	}
	return terminal.AttachConsole(ctx, c.cluster, c.node, in, out)
}

func (c *Console) newUnsupportedError(why string) error {
	return &provider.Error{Hypervisor: c.machine.Hypervisor, Node: c.node, Op: "connect to the console", Err: errors.New(why)}
}
