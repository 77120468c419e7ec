package machine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
)

// Opener returns the provider of a hypervisor. It only checks the settings: the provider connects at its first request.
type Opener func(name string, h provider.Hypervisor) (provider.Provider, error)

type hypervisors map[string]provider.Provider

type observed struct {
	cluster     provider.Cluster
	network     provider.Network
	hosts       hypervisors
	inventories map[string]provider.Inventory // by hypervisor
}

// observeHypervisors connects to hypervisors and asks each for its machines, network and images. The caller must close the
// connections in the result.
func (m *Manager) observeHypervisors(ctx context.Context, recorded *state.State, where map[string]provider.Hypervisor, net provider.Network) (observed, error) {
	o := observed{cluster: clusterIdentity(m.Hive, recorded), network: net}
	var err error
	if o.hosts, err = openHypervisors(m.Open, where); err != nil {
		return observed{}, err
	}
	o.inventories, err = forHypervisors(o.hosts, "survey", func(name string) (provider.Inventory, error) {
		wait := m.Send.Wait(event.Event{Phase: event.Provision, Text: fmt.Sprintf("hypervisor %s: a list of its machines", name)})
		defer wait.End()
		inventory, err := o.hosts[name].Survey(ctx, o.cluster, net)
		return inventory, addForgetHint(err, name, recorded)
	})
	if err != nil {
		o.hosts.close()
		return observed{}, err
	}
	return o, nil
}

func (m *Manager) observeRecorded(ctx context.Context, recorded *state.State) (observed, error) {
	return m.observeHypervisors(ctx, recorded, recorded.Cluster.Hypervisors, recorded.Cluster.Network)
}

func openHypervisors(open Opener, where map[string]provider.Hypervisor) (hypervisors, error) {
	hs := hypervisors{}
	for _, name := range slices.Sorted(maps.Keys(where)) {
		p, err := open(name, where[name])
		if err != nil {
			hs.close()
			return nil, wrapHypervisorError(err, name, "connect")
		}
		hs[name] = p
	}
	return hs, nil
}

// openHost returns the hypervisor of a node's machine, according to the state. The caller must close it.
func (m *Manager) openHost(recorded *state.State, node string) (provider.Provider, error) {
	name := recorded.Machines[node].Hypervisor
	p, err := m.Open(name, recorded.Cluster.Hypervisors[name])
	return p, wrapHypervisorError(err, name, "connect")
}

func (hs hypervisors) close() {
	for _, p := range hs {
		_ = p.Close() // ignore an error of Close, because all requests have ended
	}
}

// forHypervisors calls f for the names of all hypervisors at the same time. It returns the results of the successful calls, by the
// name of the hypervisor, and the joined errors of the other calls.
func forHypervisors[T any](hs hypervisors, op string, f func(name string) (T, error)) (map[string]T, error) {
	out := map[string]T{}
	var mu sync.Mutex
	err := fleet.ForAll(slices.Sorted(maps.Keys(hs)), func(name string) error {
		v, err := f(name)
		if err != nil {
			return wrapHypervisorError(err, name, op)
		}
		mu.Lock()
		defer mu.Unlock()
		out[name] = v
		return nil
	})
	return out, err
}

// wrapHypervisorError adds the hypervisor's name and the operation to an error, unless it is a [provider.Error], which
// has both. It returns nil for nil.
func wrapHypervisorError(err error, name, op string) error {
	if err == nil || errors.As(err, new(*provider.Error)) {
		return err
	}
	return &provider.Error{Hypervisor: name, Op: op, Err: err}
}

// addForgetHint adds, to the error of an unreachable hypervisor that is recorded in the state, the command that removes the hypervisor
// from the state.
func addForgetHint(err error, name string, recorded *state.State) error {
	if recorded.Cluster == nil || !errors.Is(err, provider.ErrUnreachable) {
		return err
	}
	if _, ours := recorded.Cluster.Hypervisors[name]; !ours {
		return err
	}
	hint := "if it is permanently lost, remove it from cluster.hypervisors, then: nixbench destroy --forget-hypervisor " + name
	if more := failure.Hint(err); more != "" {
		hint = more + "; " + hint
	}
	return failure.WithHint(err, hint)
}
