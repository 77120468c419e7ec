package machine

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
)

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
