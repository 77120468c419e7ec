package machine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
	"github.com/nixbench/nixbench/nixeval"
)

const (
	Stopped state.Outcome = "stopped"
	Started state.Outcome = "started"
)

type Power struct {
	*Manager
	Fleet     *fleet.Fleet                              // logs in to machines that have started
	AfterBoot func(context.Context, nixeval.Node) error // is called for each node that is ready; nil: nothing to do

	observed
	machines map[string]poweredMachine // node → the machine of the node, as the hypervisor reports it
}

type poweredMachine struct {
	hypervisor string
	state      provider.State
}

type PowerOptions struct {
	Parallel int           // maximum number of machines that are stopped or started at the same time; 0: no limit
	Timeout  time.Duration // maximum time until a machine is off (Stop) or ready (Start)
	Force    bool          // whether Stop ends a machine that is not off after Timeout, as a power failure does
}

// OpenPower connects to the recorded hypervisors and reads which machines of the cluster they have. The caller must
// call Close of the returned Power.
func (m *Manager) OpenPower(ctx context.Context, f *fleet.Fleet, recorded *state.State) (*Power, error) {
	p := &Power{Manager: m, Fleet: f, machines: map[string]poweredMachine{}}
	if recorded.Cluster == nil { // there was no apply yet
		return p, nil
	}
	var err error
	if p.observed, err = m.observeRecorded(ctx, recorded); err != nil {
		return nil, err
	}
	for name, inventory := range p.inventories {
		for _, found := range inventory.Machines {
			if host := recorded.Machines[found.Node].Hypervisor; host == "" || host == name { // if two hypervisors have a machine of the node, use the recorded one
				p.machines[found.Node] = poweredMachine{name, found.State}
			}
		}
	}
	return p, nil
}

func (p *Power) Close() { p.hosts.close() }

func (p *Power) IsOff(node string) bool {
	state := p.machines[node].state
	return state == "" || state == provider.Off || state == provider.Incomplete
}

// powerGroups returns the nodes in groups, in the order in which their machines start. The engine, such as kubernetes, gives each role a
// number, and the group with the lowest number starts first. Nodes without an engine are in the last group.
func powerGroups(hive *nixeval.Hive, nodes []nixeval.Node) [][]nixeval.Node {
	groups := map[int][]nixeval.Node{}
	for _, n := range nodes {
		order := math.MaxInt
		if u := hive.Unit(n.Unit); u != nil && u.Deployment.Engine != nil {
			order = u.Deployment.Engine.Order
		}
		groups[order] = append(groups[order], n)
	}
	var out [][]nixeval.Node
	for _, order := range slices.Sorted(maps.Keys(groups)) {
		out = append(out, groups[order])
	}
	return out
}

// Stop shuts down the machines of the nodes: first the machines of workers, and then the machines that workers need,
// such as control planes. If the machine of a worker does not shut down, the machines that it may need stay on.
func (p *Power) Stop(ctx context.Context, nodes []nixeval.Node, record *runs.Recorder, o PowerOptions) ([]state.NodeResult, error) {
	groups := powerGroups(p.Hive, nodes)
	slices.Reverse(groups)
	return steps{p.Send, record, event.Provision, event.Stop, o.Parallel}.run(ctx, groups, func(ctx context.Context, n nixeval.Node) (state.Outcome, error) {
		if p.IsOff(n.Name) {
			return state.Unchanged, nil
		}
		p.Fleet.Drop(n.Name)
		return Stopped, p.stopMachine(ctx, n.Name, o)
	})
}

// stopMachine shuts down the machine of a node. If the machine is not off in time, or the hypervisor refuses,
// stopMachine returns an error, or, if o.Force is set, stops the machine as a power failure does.
func (p *Power) stopMachine(ctx context.Context, node string, o PowerOptions) error {
	power, err := p.powerOf(node)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	until, _ := limited.Deadline()
	wait := p.Send.Wait(event.Event{Node: node, Phase: event.Stop, Text: "its system to shut down", Until: until})
	err = power.ShutDown(limited, p.cluster, node, false)
	wait.End()
	switch {
	case ctx.Err() != nil:
		return failure.On(node, context.Cause(ctx))
	case errors.Is(err, provider.ErrRefused):
	case err == nil || limited.Err() == nil:
		return err
	default:
		err = &provider.Error{Hypervisor: p.machines[node].hypervisor, Node: node, Op: "shut down", Err: fmt.Errorf("its system has not shut down within %s", o.Timeout)}
	}
	if !o.Force {
		hint := "nixbench stop --force stops it as a power failure does"
		if !errors.Is(err, provider.ErrRefused) {
			hint = "nixbench console " + node + " shows what it waits for; " + hint + ", --timeout sets a longer limit"
		}
		return failure.WithHint(err, hint)
	}
	p.Send.Send(event.Event{Kind: event.Message, Node: node, Level: "warning", Text: fmt.Sprintf("%s: %s; its machine is stopped by force", node, fleet.Brief(node, err))})
	return power.ShutDown(ctx, p.cluster, node, true)
}

// Start starts the machines of the nodes, and waits until their systems have booted: first the machines that others
// need, such as control planes. If one of these does not become ready, the other machines are not started. Start also
// waits for machines that are already running, because an interrupted Start may have started them.
func (p *Power) Start(ctx context.Context, nodes []nixeval.Node, record *runs.Recorder, o PowerOptions) ([]state.NodeResult, error) {
	return steps{p.Send, record, event.Provision, event.Boot, o.Parallel}.run(ctx, powerGroups(p.Hive, nodes), func(ctx context.Context, n nixeval.Node) (state.Outcome, error) {
		outcome := Started
		if p.machines[n.Name].state == provider.Running {
			outcome = state.Unchanged
		}
		err := p.startMachine(ctx, n, outcome == Started, o.Timeout)
		if err == nil && p.AfterBoot != nil {
			err = p.AfterBoot(ctx, n)
		}
		return outcome, err
	})
}

func (p *Power) startMachine(ctx context.Context, n nixeval.Node, isOff bool, timeout time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if isOff {
		power, err := p.powerOf(n.Name)
		if err != nil {
			return err
		}
		if err := power.Start(limited, p.cluster, n.Name); err != nil {
			return err
		}
	}
	host, err := p.Fleet.Host(limited, n)
	if err != nil {
		return err
	}
	if err := waitForSystem(limited, host, p.Send); err != nil {
		if ctx.Err() != nil {
			return failure.On(n.Name, context.Cause(ctx))
		}
		if !isOff {
			err = fmt.Errorf("its machine runs, but is not ready after %s: %w", timeout, err)
		}
		return failure.WithHint(&BootError{Node: n.Name, Started: isOff, Within: timeout, Err: err},
			"nixbench console "+n.Name+" shows what it prints; nixbench apply also waits for it, and discovers a new address")
	}
	return nil
}

// TurnOn starts the recorded machine of a node if the machine does not run. It connects only to the hypervisor of this machine.
func (m *Manager) TurnOn(ctx context.Context, recorded *state.State, node string) error {
	p, err := m.openHost(recorded, node)
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }()
	return p.Start(ctx, clusterIdentity(m.Hive, recorded), node)
}

func (p *Power) powerOf(node string) (provider.Provider, error) {
	m, exists := p.machines[node]
	if !exists || m.state == provider.Incomplete {
		return nil, &provider.Error{Node: node, Op: "start", Err: errors.New("its machine does not exist"), Fix: "nixbench apply creates it"}
	}
	return p.hosts[m.hypervisor], nil
}
