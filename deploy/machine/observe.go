package machine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
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

func NewObserver(ctx context.Context, open Opener, name string, recorded *state.State, send event.Sink) (*Observer, error) {
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
	if o.hosts, err = connectHypervisors(ctx, open, where, send); err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
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
	o, err := NewObserver(ctx, open, cluster, recorded, nil)
	if err != nil {
		return ""
	}
	defer o.Close()
	states, err := o.States(ctx)
	if err != nil {
		return ""
	}
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
