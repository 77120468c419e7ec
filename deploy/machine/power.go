package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// Outcomes of [Power.Stop] and [Power.Start].
const (
	Stopped state.Outcome = "stopped"
	Started state.Outcome = "started"
)

// Power stops and starts the existing machines of a cluster. It changes nothing else about them.
type Power struct {
	*Manager
	Fleet *fleet.Fleet // logs in to machines that have started

	observed
	machines map[string]poweredMachine // node → the machine of the node, as the hypervisor reports it
}

type poweredMachine struct {
	hypervisor string
	state      provider.State
}

// PowerOptions are the options of [Power.Stop] and [Power.Start].
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

// Close closes the connections to the hypervisors.
func (p *Power) Close() { p.hosts.close() }

// IsRunning reports whether the node's machine runs.
func (p *Power) IsRunning(node string) bool { return p.machines[node].state == provider.Running }

// IsOff reports whether the node's machine is off or missing.
func (p *Power) IsOff(node string) bool {
	state := p.machines[node].state
	return state == "" || state == provider.Off || state == provider.Incomplete
}

// powerGroups returns the nodes in groups, in the order in which their machines start. The engine, such as kubernetes, gives each role a
// number, and the group with the lowest number starts first. Nodes without an engine are in the last group.
func powerGroups(hive *nixeval.Hive, nodes []nixeval.Node) [][]nixeval.Node {
	last := 0
	order := map[string]int{}
	for _, n := range nodes {
		if u := hive.Unit(n.Unit); u != nil && u.Deployment.Engine != nil {
			order[n.Name] = u.Deployment.Engine.Order
			last = max(last, order[n.Name])
		}
	}
	orderOf := func(n nixeval.Node) int {
		if o, isMember := order[n.Name]; isMember {
			return o
		}
		return last
	}
	sorted := slices.SortedStableFunc(slices.Values(nodes), func(a, b nixeval.Node) int { return cmp.Compare(orderOf(a), orderOf(b)) })
	var out [][]nixeval.Node
	for _, n := range sorted {
		if i := len(out) - 1; i >= 0 && orderOf(out[i][0]) == orderOf(n) {
			out[i] = append(out[i], n)
		} else {
			out = append(out, []nixeval.Node{n})
		}
	}
	return out
}

// Stop shuts down the machines of the nodes: first the machines of workers, and then the machines that workers need,
// such as control planes. If the machine of a worker does not shut down, the machines that it may need stay on.
func (p *Power) Stop(ctx context.Context, nodes []nixeval.Node, record *runs.Recorder, o PowerOptions) ([]state.NodeResult, error) {
	groups := powerGroups(p.Hive, nodes)
	slices.Reverse(groups)
	return p.change(ctx, groups, record, o.Parallel, Stopped, func(ctx context.Context, n nixeval.Node) (bool, error) {
		if p.IsOff(n.Name) {
			return false, nil
		}
		p.Fleet.Drop(n.Name)
		return true, p.stopMachine(ctx, n.Name, o)
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
	refused := errors.Is(err, provider.ErrRefused)
	switch {
	case ctx.Err() != nil:
		return failure.On(node, context.Cause(ctx))
	case err == nil || !refused && limited.Err() == nil:
		return err
	case refused && !o.Force:
		return failure.WithHint(err, "nixbench stop --force stops it as a power failure does")
	case !refused:
		err = &provider.Error{
			Hypervisor: p.machines[node].hypervisor, Node: node, Op: "shut down", Err: fmt.Errorf("its system has not shut down within %s", o.Timeout),
			Fix: "nixbench console " + node + " shows what it waits for; --force stops it as a power failure does, --timeout sets a longer limit",
		}
	}
	if !o.Force {
		return err
	}
	p.Send.Send(event.Event{Kind: event.Message, Node: node, Level: "warning", Text: fmt.Sprintf("%s: %s; its machine is stopped by force", node, fleet.Brief(node, err))})
	return power.ShutDown(ctx, p.cluster, node, true)
}

// Start starts the machines of the nodes, and waits until their systems have booted: first the machines that others
// need, such as control planes. If one of these does not become ready, the other machines are not started. Start also
// waits for machines that are already running, because an interrupted Start may have started them.
func (p *Power) Start(ctx context.Context, nodes []nixeval.Node, record *runs.Recorder, o PowerOptions) ([]state.NodeResult, error) {
	return p.change(ctx, powerGroups(p.Hive, nodes), record, o.Parallel, Started, func(ctx context.Context, n nixeval.Node) (bool, error) {
		isOff := !p.IsRunning(n.Name)
		return isOff, p.startMachine(ctx, n, isOff, o.Timeout)
	})
}

// startMachine starts the machine of a node if it is off, and waits until its system has booted.
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
	usesCloudInit := p.Hive.Roles[n.Role].Identity == string(provider.CloudInit)
	if err := waitForSystem(limited, host, usesCloudInit, p.Send); err != nil {
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

// powerOf returns the provider of the hypervisor that has the node's machine.
func (p *Power) powerOf(node string) (provider.Power, error) {
	m, exists := p.machines[node]
	if !exists || m.state == provider.Incomplete {
		return nil, &provider.Error{Node: node, Op: "start", Err: errors.New("its machine does not exist"), Fix: "nixbench apply creates it"}
	}
	power, ok := p.hosts[m.hypervisor].(provider.Power)
	if !ok {
		return nil, &provider.Error{Hypervisor: m.hypervisor, Node: node, Op: "stop or start", Err: errors.New("this kind of hypervisor cannot do it")}
	}
	return power, nil
}

// change calls f for the nodes of the first group, then for the nodes of the second group, and so on. f returns whether it has changed
// the node's machine. If f fails for a node, the later groups are skipped. change also writes the results into the record of the run.
func (p *Power) change(ctx context.Context, groups [][]nixeval.Node, record *runs.Recorder, parallel int, done state.Outcome, f func(context.Context, nixeval.Node) (bool, error)) ([]state.NodeResult, error) {
	phase := map[state.Outcome]event.Phase{Stopped: event.Stop, Started: event.Boot}[done]
	total := 0
	for _, group := range groups {
		total += len(group)
	}
	p.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Provision, Total: total})
	var results []state.NodeResult
	var errs []error
	counts := map[state.Outcome]int{}
	report := func(n nixeval.Node, outcome state.Outcome, text string, err error) {
		r := state.NodeResult{Node: n.Name, Unit: n.Unit, Outcome: outcome}
		if err != nil {
			r.Error, text = err.Error(), "failed: "+fleet.Brief(n.Name, err)
		}
		record.Result(r)
		results = append(results, r)
		counts[outcome]++
		p.Send.Send(event.Event{Kind: event.NodeResult, Phase: phase, Node: n.Name, Text: text, Failed: err != nil || outcome == state.Skipped})
	}
	for _, group := range groups {
		if len(errs) > 0 {
			for _, n := range group {
				report(n, state.Skipped, "skipped: an earlier machine failed", nil)
			}
			continue
		}
		for _, o := range fleet.Each(ctx, group, parallel, func(ctx context.Context, n nixeval.Node) (bool, error) {
			p.Send.Send(event.Event{Kind: event.NodeStart, Phase: phase, Node: n.Name})
			changed, err := f(ctx, n)
			p.Send.Send(event.Event{Kind: event.NodeEnd, Phase: phase, Node: n.Name, Failed: err != nil})
			return changed, err
		}) {
			switch {
			case o.Err != nil:
				errs = append(errs, o.Err)
				report(o.Node, state.Failed, "", o.Err)
			case o.Value:
				report(o.Node, done, string(done), nil)
			default:
				report(o.Node, state.Unchanged, string(state.Unchanged), nil)
			}
		}
	}
	text := ""
	for _, outcome := range []state.Outcome{done, state.Unchanged, state.Failed, state.Skipped} {
		if counts[outcome] > 0 {
			text += fmt.Sprintf(", %d %s", counts[outcome], outcome)
		}
	}
	p.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Provision, Total: total, Failed: len(errs) > 0, Text: text[min(2, len(text)):]})
	return results, errors.Join(errs...)
}
