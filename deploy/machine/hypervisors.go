package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Opener connects to a hypervisor.
type Opener func(ctx context.Context, name string, h state.Hypervisor) (provider.Provider, error)

// hypervisors contains the connections to the hypervisors of a cluster, by the hypervisor's name.
type hypervisors map[string]provider.Provider

// connectHypervisors opens the connections to all hypervisors at the same time. If some connections cannot be
// opened, it returns the opened connections together with the error.
func connectHypervisors(ctx context.Context, open Opener, where map[string]state.Hypervisor, send event.Sink) (hypervisors, error) {
	out := hypervisors{}
	var mu sync.Mutex
	err := fleet.ForAll(slices.Sorted(maps.Keys(where)), func(name string) error {
		wait := send.Wait(event.Event{Phase: event.Provision, Text: fmt.Sprintf("hypervisor %s: a connection to %s", name, where[name].URI)})
		defer wait.End()
		p, err := open(ctx, name, where[name])
		if err != nil {
			return wrapHypervisorError(err, name, "connect")
		}
		mu.Lock()
		defer mu.Unlock()
		out[name] = p
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

func (hs hypervisors) close() {
	for _, p := range hs {
		if c, ok := p.(io.Closer); ok {
			_ = c.Close() // an error is ignored, because all requests have ended
		}
	}
}

// survey returns the inventory of each hypervisor, by the hypervisor's name.
func (hs hypervisors) survey(ctx context.Context, c provider.Cluster, net provider.Network, send event.Sink) (map[string]provider.Inventory, error) {
	sites := map[string]provider.Inventory{}
	var mu sync.Mutex
	err := fleet.ForAll(slices.Sorted(maps.Keys(hs)), func(name string) error {
		wait := send.Wait(event.Event{Phase: event.Provision, Text: fmt.Sprintf("hypervisor %s: a list of its machines", name)})
		defer wait.End()
		site, err := hs[name].Survey(ctx, c, net)
		if err != nil {
			return wrapHypervisorError(err, name, "survey")
		}
		mu.Lock()
		defer mu.Unlock()
		sites[name] = site
		return nil
	})
	return sites, err
}

// hypervisorsOf returns the hypervisors of the hive.
func hypervisorsOf(hive *nixeval.Hive) map[string]state.Hypervisor {
	out := map[string]state.Hypervisor{}
	if hive.Cluster == nil {
		return out
	}
	for name, h := range hive.Cluster.Hypervisors {
		out[name] = state.Hypervisor{URI: h.URI, Pool: h.Pool, PoolPath: h.PoolPath}
	}
	return out
}
