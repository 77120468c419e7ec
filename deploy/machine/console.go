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

// OpenConsole connects to the hypervisor that has the node's machine, according to the state. The caller must close the
// returned Console.
func (m *Manager) OpenConsole(ctx context.Context, recorded *state.State, node string) (*Console, error) {
	machine, exists := recorded.Machines[node]
	if !exists || recorded.Cluster == nil {
		return nil, &provider.Error{Node: node, Op: "connect to the console", Err: errors.New("its machine has not been booted yet"), Fix: "nixbench apply boots it"}
	}
	where := map[string]provider.Hypervisor{machine.Hypervisor: recorded.Cluster.Hypervisors[machine.Hypervisor]}
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
	console, err := c.open()
	if err != nil {
		return "", err
	}
	return console.ConsoleTail(ctx, c.cluster, c.node, max)
}

// Attach connects the console to the user, see [provider.Console].
func (c *Console) Attach(ctx context.Context, in <-chan []byte, out io.Writer) error {
	console, err := c.open()
	if err != nil {
		return err
	}
	return console.AttachConsole(ctx, c.cluster, c.node, in, out)
}

func (c *Console) open() (provider.Console, error) {
	console, ok := c.provider.(provider.Console)
	if !ok {
		return nil, &provider.Error{Hypervisor: c.machine.Hypervisor, Node: c.node, Op: "connect to the console", Err: errors.New("this kind of hypervisor has no consoles")}
	}
	return console, nil
}
