package fakeprovider

import (
	"context"

	"github.com/nixbench/nixbench/deploy/provision"
)

// States implements [provision.Observer].
func (h *Hypervisor) States(_ context.Context, c provision.Cluster, nodes []string) (map[string]provision.State, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	states := map[string]provision.State{}
	for _, node := range nodes {
		if d := h.domains[domainName(c, node)]; d != nil && d.ours(c) {
			states[node] = d.state()
		}
	}
	return states, nil
}

// Emulated implements [provision.Observer].
func (h *Hypervisor) Emulated(ctx context.Context, c provision.Cluster, nodes []string) ([]string, error) {
	states, err := h.States(ctx, c, nodes)
	if err != nil || !h.NoKVM || h.Kind != provision.VM {
		return nil, err
	}
	return sortedKeys(states), nil
}
