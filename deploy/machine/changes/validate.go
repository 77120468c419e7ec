package changes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// validate returns an error if no plan can be made from these inputs.
func validate(desired []Desired, inventories map[string]provider.Inventory, o Options) error {
	if err := validateDistinctHosts(inventories); err != nil {
		return err
	}
	if err := validateAllowedHypervisors(desired, inventories, o.Closed); err != nil {
		return err
	}
	return validateNetworkOwner(inventories, o)
}

// validateDistinctHosts returns an error if two names in the hive refer to the same hypervisor. Without this error, nixbench would
// observe each machine on that hypervisor twice.
func validateDistinctHosts(inventories map[string]provider.Inventory) error {
	type hypervisor struct {
		host string
		kind provider.Kind
	}
	first := map[hypervisor]string{}
	for _, name := range slices.Sorted(maps.Keys(inventories)) {
		h := hypervisor{inventories[name].Host, inventories[name].Kind}
		other, twice := first[h]
		if h.host == "" || !twice {
			first[h] = name
			continue
		}
		return &PlanError{
			Text: fmt.Sprintf("hypervisors %s and %s are the same hypervisor: both are on host %s and run the same kind of machines", other, name, strings.Fields(h.host)[0]),
			Fix:  "keep one of them in cluster.hypervisors; if its machines exist, with the name under which they were created",
		}
	}
	return nil
}

// validateNetworkOwner returns an error if an existing network that the hive names is missing or not active, or if a hypervisor has a
// network with our network's name that this cluster does not own. The latter also occurs if the state folder was lost: the cluster then
// has a new id, and the network has the old id.
func validateNetworkOwner(inventories map[string]provider.Inventory, o Options) error {
	for _, name := range slices.Sorted(maps.Keys(inventories)) {
		net := inventories[name].Network
		if o.Network.Mode == provider.Existing && (net == nil || !net.Active) {
			return &PlanError{
				Text: fmt.Sprintf("hypervisor %s: there is no network %s, or it is not active", name, o.Network.Name),
				Fix:  `define and start it, or set cluster.network.mode to "nat"`,
			}
		}
		if o.Network.Mode.Ours() && net != nil && !net.Ours {
			if net.Owner != "" {
				return &PlanError{
					Text: fmt.Sprintf("hypervisor %s already has a network %s, which nixbench created for %s; this cluster has the id %s", name, o.Network.Name, net.Owner, o.Cluster.ID),
					Fix: fmt.Sprintf("run nixbench destroy with the state folder of that cluster; if that folder is lost, remove the machines with its id by hand, then network %s; or choose another cluster.network.name",
						o.Network.Name),
				}
			}
			return &PlanError{
				Text: fmt.Sprintf("hypervisor %s already has a network %s, which does not belong to this cluster", name, o.Network.Name),
				Fix:  `choose another cluster.network.name, or use the network as it is with cluster.network.mode = "existing"; if it belongs to this cluster, the state folder was lost: restore it`,
			}
		}
	}
	return nil
}

// validateAllowedHypervisors returns an error if a role names a hypervisor that the hive does not contain.
func validateAllowedHypervisors(desired []Desired, inventories map[string]provider.Inventory, closed map[string]bool) error {
	for _, w := range desired {
		for _, name := range w.On {
			if _, ok := inventories[name]; ok && !closed[name] {
				continue
			}
			open := slices.DeleteFunc(slices.Sorted(maps.Keys(inventories)), func(name string) bool { return closed[name] })
			return &PlanError{
				Text: fmt.Sprintf("roles.%s.hypervisors: cluster.hypervisors has no %s, only %s", w.Role, name, strings.Join(open, ", ")),
				Fix:  "use one of these names, or add it to cluster.hypervisors",
			}
		}
	}
	return nil
}
