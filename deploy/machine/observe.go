package machine

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Observer reads the states of a cluster's machines from their hypervisors, during a measurement.
type Observer struct {
	hosts   hypervisors
	cluster provider.Cluster
	nodes   map[string][]string // by hypervisor
}

func NewObserver(open Opener, name string, recorded *state.State) (*Observer, error) {
	o := &Observer{nodes: map[string][]string{}}
	if recorded.Cluster == nil {
		return o, nil
	}
	o.cluster = provider.Cluster{Name: name, ID: recorded.Cluster.ID}
	where := map[string]provider.Hypervisor{}
	for node, m := range recorded.Machines {
		where[m.Hypervisor] = recorded.Cluster.Hypervisors[m.Hypervisor]
		o.nodes[m.Hypervisor] = append(o.nodes[m.Hypervisor], node)
	}
	for _, nodes := range o.nodes {
		slices.SortFunc(nodes, nixeval.CompareNatural)
	}
	var err error
	o.hosts, err = openHypervisors(open, where)
	return o, err
}

func (o *Observer) Close() { o.hosts.close() }

const absent provider.State = "absent"

func (o *Observer) States(ctx context.Context) (map[string]string, error) {
	found, err := forHypervisors(o.hosts, "observe the machines", func(name string) (map[string]provider.State, error) {
		return o.hosts[name].States(ctx, o.cluster, o.nodes[name])
	})
	out := map[string]string{}
	for name, states := range found {
		for _, node := range o.nodes[name] {
			out[node] = string(cmp.Or(states[node], absent))
		}
	}
	return out, err
}

// DescribeDown asks the hypervisor of a node's machine for the state of the machine, and returns the state if the
// machine does not run, such as "off". It returns "" if the machine runs or is paused, or if the state cannot be read.
func DescribeDown(ctx context.Context, open Opener, cluster, node string, m state.Machine, c *state.Cluster) string {
	if m.Created == nil || c == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	recorded := &state.State{Cluster: c, Machines: map[string]state.Machine{node: m}}
	o, err := NewObserver(open, cluster, recorded)
	if err != nil {
		return ""
	}
	defer o.Close()
	states, _ := o.States(ctx) // no state of the node after an error
	return downTexts[states[node]]
}

var downTexts = map[string]string{string(provider.Off): "off", string(provider.Crashed): "crashed", string(absent): "gone"}

// Machines returns the nodes whose machines are virtual machines without KVM, and what identifies the processes of the machines by node, see
// [provider.Actual].
func (o *Observer) Machines(ctx context.Context) (emulated []string, processes map[string]string, err error) {
	inventories, err := forHypervisors(o.hosts, "survey", func(name string) (provider.Inventory, error) {
		return o.hosts[name].Survey(ctx, o.cluster, provider.Network{})
	})
	processes = map[string]string{}
	for _, inventory := range inventories {
		for _, m := range inventory.Machines {
			if processes[m.Node] = m.Process; inventory.Emulated {
				emulated = append(emulated, m.Node)
			}
		}
	}
	slices.Sort(emulated)
	return emulated, processes, err
}

type Status struct {
	State      string     `json:"state"` // running, off, paused, crashed, half or absent
	Hypervisor string     `json:"hypervisor,omitempty"`
	Address    netip.Addr `json:"address,omitzero"`
}

// Off reports whether the machine does not run; it returns false if nixbench does not manage the node's machine, so that m is nil.
func (m *Status) Off() bool { return m != nil && m.State != string(provider.Running) }

func (m *Manager) Status(ctx context.Context, recorded *state.State) (map[string]*Status, error) {
	out := map[string]*Status{}
	if !m.HasMachines(recorded) {
		return out, nil
	}
	for _, n := range Booted(m.Hive, m.Hive.Nodes) {
		s := recorded.Machines[n.Name]
		out[n.Name] = &Status{State: "absent", Hypervisor: s.Hypervisor, Address: s.Address}
	}
	if recorded.Cluster == nil {
		return out, nil // the state has no cluster, so there was no apply yet, and all machines are absent
	}
	o, err := m.observeRecorded(ctx, recorded)
	if err != nil {
		return nil, err
	}
	defer o.hosts.close()
	for _, name := range slices.Sorted(maps.Keys(o.inventories)) {
		for _, f := range o.inventories[name].Machines {
			if s := out[f.Node]; s != nil {
				s.State, s.Hypervisor = string(f.State), name
			}
		}
	}
	return out, nil
}

// Console is the console of a node's machine.
type Console struct {
	provider.Provider
	node    string
	cluster provider.Cluster
}

// OpenConsole opens the hypervisor that has the node's machine, according to the state. The caller must close the returned Console.
func (m *Manager) OpenConsole(recorded *state.State, node string) (*Console, error) {
	if _, exists := recorded.Machines[node]; !exists || recorded.Cluster == nil {
		return nil, &provider.Error{Node: node, Op: "connect to the console", Err: errors.New("its machine has not been booted yet"), Fix: "nixbench apply boots it"}
	}
	p, err := m.openHost(recorded, node)
	return &Console{p, node, clusterIdentity(m.Hive, recorded)}, err
}

func (c *Console) Tail(ctx context.Context, max int) (string, error) {
	return c.ConsoleTail(ctx, c.cluster, c.node, max)
}

func (c *Console) Attach(ctx context.Context, in <-chan []byte, out io.Writer) error {
	return c.AttachConsole(ctx, c.cluster, c.node, in, out)
}
