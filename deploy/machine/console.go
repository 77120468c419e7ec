package machine

import (
	"context"
	"errors"
	"io"

	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
)

type Console struct {
	node     string
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
	name := machine.Hypervisor
	hosts, err := connectHypervisors(ctx, m.Open, map[string]provider.Hypervisor{name: recorded.Cluster.Hypervisors[name]}, m.Send)
	if err != nil {
		return nil, err
	}
	return &Console{node, clusterIdentity(m.Hive, recorded), hosts, hosts[name]}, nil
}

func (c *Console) Close() { c.hosts.close() }

func (c *Console) Tail(ctx context.Context, max int) (string, error) {
	return c.provider.ConsoleTail(ctx, c.cluster, c.node, max)
}

func (c *Console) Attach(ctx context.Context, in <-chan []byte, out io.Writer) error {
	return c.provider.AttachConsole(ctx, c.cluster, c.node, in, out)
}
