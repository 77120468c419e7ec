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

type Opener func(ctx context.Context, name string, h provider.Hypervisor) (provider.Provider, error)

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
	open := func(ctx context.Context, name string, h provider.Hypervisor) (provider.Provider, error) {
		p, err := m.Open(ctx, name, h)
		return p, addForgetHint(err, name, recorded)
	}
	var err error
	if o.hosts, err = connectHypervisors(ctx, open, where, m.Send); err == nil {
		o.inventories, err = forHypervisors(o.hosts, "survey", func(name string) (provider.Inventory, error) {
			wait := m.Send.Wait(event.Event{Phase: event.Provision, Text: fmt.Sprintf("hypervisor %s: a list of its machines", name)})
			defer wait.End()
			inventory, err := o.hosts[name].Survey(ctx, o.cluster, net)
			return inventory, addForgetHint(err, name, recorded)
		})
	}
	if err != nil {
		o.hosts.close()
		return observed{}, err
	}
	return o, nil
}

func (m *Manager) observeRecorded(ctx context.Context, recorded *state.State) (observed, error) {
	return m.observeHypervisors(ctx, recorded, recorded.Cluster.Hypervisors, recorded.Cluster.Network)
}

// connectHypervisors opens the connections to all hypervisors at the same time. If some connections cannot be
// opened, it returns the opened connections together with the error.
func connectHypervisors(ctx context.Context, open Opener, where map[string]provider.Hypervisor, send event.Sink) (hypervisors, error) {
	return forHypervisors(where, "connect", func(name string) (provider.Provider, error) {
		wait := send.Wait(event.Event{Phase: event.Provision, Text: fmt.Sprintf("hypervisor %s: a connection to %s", name, where[name].URI)})
		defer wait.End()
		return open(ctx, name, where[name])
	})
}

func (hs hypervisors) close() {
	for _, p := range hs {
		_ = p.Close() // ignore an error of Close, because all requests have ended
	}
}

// forHypervisors calls f for the names of all hypervisors at the same time. It returns the results of the successful calls, by the
// name of the hypervisor, and the joined errors of the other calls.
func forHypervisors[H, T any](hypervisors map[string]H, op string, f func(name string) (T, error)) (map[string]T, error) {
	out := map[string]T{}
	var mu sync.Mutex
	err := fleet.ForAll(slices.Sorted(maps.Keys(hypervisors)), func(name string) error {
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
