package fake

import (
	"context"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// States implements [provider.Observer].
func (h *Hypervisor) States(_ context.Context, c provider.Cluster, nodes []string) (map[string]provider.State, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	states := map[string]provider.State{}
	for _, node := range nodes {
		if d := h.domains[domainName(c, node)]; d != nil && d.ours(c) {
			states[node] = d.state()
		}
	}
	return states, nil
}

// Emulated implements [provider.Observer].
func (h *Hypervisor) Emulated(ctx context.Context, c provider.Cluster, nodes []string) ([]string, error) {
	states, err := h.States(ctx, c, nodes)
	if err != nil || !h.NoKVM || h.Kind != provider.VM {
		return nil, err
	}
	return sortedKeys(states), nil
}
