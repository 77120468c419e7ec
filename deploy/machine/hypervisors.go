package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
)

// Opener connects to a hypervisor.
type Opener func(ctx context.Context, name string, h provider.Hypervisor) (provider.Provider, error)

// hypervisors contains the connections to the hypervisors of a cluster, by the hypervisor's name.
type hypervisors map[string]provider.Provider

// observed contains what the hypervisors of a cluster report, and the connections to these hypervisors.
type observed struct {
	cluster     provider.Cluster
	network     provider.Network
	hosts       hypervisors
	inventories map[string]provider.Inventory // by hypervisor
}

// observe connects to hypervisors and asks each for its machines, network and images. The caller must close the
// connections in the result.
func (m *Manager) observe(ctx context.Context, recorded *state.State, where map[string]provider.Hypervisor, net provider.Network) (observed, error) {
	o := observed{cluster: m.clusterIdentity(recorded), network: net}
	var err error
	if o.hosts, err = connectHypervisors(ctx, m.Open, where, m.Send); err == nil {
		o.inventories, err = o.hosts.survey(ctx, o.cluster, net, m.Send)
	}
	if err != nil {
		o.hosts.close()
		return observed{}, addForgetHint(err, recorded)
	}
	return o, nil
}

// observeRecorded observes the recorded hypervisors of a cluster.
func (m *Manager) observeRecorded(ctx context.Context, recorded *state.State) (observed, error) {
	return m.observe(ctx, recorded, recorded.Cluster.Hypervisors, recorded.Cluster.Network)
}

// connectHypervisors opens the connections to all hypervisors at the same time. If some connections cannot be
// opened, it returns the opened connections together with the error.
func connectHypervisors(ctx context.Context, open Opener, where map[string]provider.Hypervisor, send event.Sink) (hypervisors, error) {
	return forHypervisors(slices.Sorted(maps.Keys(where)), "connect", func(name string) (provider.Provider, error) {
		wait := send.Wait(event.Event{Phase: event.Provision, Text: fmt.Sprintf("hypervisor %s: a connection to %s", name, where[name].URI)})
		defer wait.End()
		return open(ctx, name, where[name])
	})
}

// survey returns the inventory of each hypervisor, by the hypervisor's name.
func (hs hypervisors) survey(ctx context.Context, c provider.Cluster, net provider.Network, send event.Sink) (map[string]provider.Inventory, error) {
	return forHypervisors(slices.Sorted(maps.Keys(hs)), "survey", func(name string) (provider.Inventory, error) {
		wait := send.Wait(event.Event{Phase: event.Provision, Text: fmt.Sprintf("hypervisor %s: a list of its machines", name)})
		defer wait.End()
		return hs[name].Survey(ctx, c, net)
	})
}

func (hs hypervisors) close() {
	for _, p := range hs {
		if c, ok := p.(io.Closer); ok {
			_ = c.Close() // ignore an error of Close, because all requests have ended
		}
	}
}

// forHypervisors calls f for all hypervisors at the same time. It returns the results of the successful calls, by the
// name of the hypervisor, and the joined errors of the other calls.
func forHypervisors[T any](names []string, op string, f func(name string) (T, error)) (map[string]T, error) {
	out := map[string]T{}
	var mu sync.Mutex
	err := fleet.ForAll(names, func(name string) error {
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
// has both.
func wrapHypervisorError(err error, name, op string) error {
	var described *provider.Error
	if errors.As(err, &described) {
		return err
	}
	return &provider.Error{Hypervisor: name, Op: op, Err: err}
}

// addForgetHint adds, to each error about an unreachable hypervisor that is recorded in the state, the command
// that removes the hypervisor from the state.
func addForgetHint(err error, recorded *state.State) error {
	if recorded.Cluster == nil {
		return err
	}
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		var all []error
		for _, one := range e.Unwrap() {
			all = append(all, addForgetHint(one, recorded))
		}
		return errors.Join(all...)
	case *provider.Error:
		if _, ours := recorded.Cluster.Hypervisors[e.Hypervisor]; ours && errors.Is(e, provider.ErrUnreachable) {
			with := *e
			with.Fix += fmt.Sprintf("; if it is permanently lost, remove it from cluster.hypervisors, then: nixbench destroy --forget-hypervisor %s", e.Hypervisor)
			with.Fix = strings.TrimPrefix(with.Fix, "; ")
			return &with
		}
	}
	return err
}
