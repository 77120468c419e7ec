package changes

import (
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// validateDistinctHosts returns an error if two names in the hive refer to the same hypervisor. Without this error, nixbench would
// observe each machine on that hypervisor twice.
func (m *planner) validateDistinctHosts() error {
	first := map[string]string{}
	for _, name := range m.names {
		host, kind := m.inventories[name].Host, m.inventories[name].Kind
		other, twice := first[host+string(kind)]
		if host == "" || !twice {
			first[host+string(kind)] = name
			continue
		}
		return NewPlanError("keep one of them in cluster.hypervisors; if its machines exist, with the name under which they were created",
			"hypervisors %s and %s are the same hypervisor: both are on host %s and run the same kind of machines",
			other, name, strings.Fields(host)[0])
	}
	return nil
}

// validateNetworkOwner returns an error if an existing network that the hive names is missing or not active, or if the hypervisor has a
// network with our network's name that this cluster does not own. The latter also occurs if the state folder was lost: the cluster then
// has a new id, and the network has the old id.
func (m *planner) validateNetworkOwner() error {
	want := m.Network
	for _, name := range m.names {
		net := m.inventories[name].Network
		switch {
		case want.Mode == provider.Existing && (net == nil || !net.Active):
			return NewPlanError(`define and start it, or set cluster.network.mode to "nat"`,
				"hypervisor %s: there is no network %s, or it is not active", name, want.Name)
		case !want.Mode.Ours() || net == nil || net.Ours:
		default:
			return NewPlanError(`choose another cluster.network.name, or use the network as it is with cluster.network.mode = "existing"; `+
				"if it belongs to this cluster, restore the lost state folder; if it belongs to another cluster of nixbench, run nixbench destroy with the state folder of that cluster",
				"hypervisor %s already has a network %s, which does not belong to this cluster, whose id is %s", name, want.Name, m.Cluster.ID)
		}
	}
	return nil
}

func (m *planner) validateAllowedHypervisors() error {
	open := slices.DeleteFunc(slices.Clone(m.names), func(name string) bool { return m.Closed[name] })
	for _, w := range m.desired {
		for _, name := range w.On {
			if !slices.Contains(open, name) {
				return NewPlanError("use one of these names, or add it to cluster.hypervisors",
					"roles.%s.hypervisors: cluster.hypervisors has no %s, only %s", w.Role, name, strings.Join(open, ", "))
			}
		}
	}
	return nil
}
