package machine

import (
	"fmt"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"maps"
	"slices"
)

// validateRange returns an error if a managed network would be created or started on a hypervisor where
// another network overlaps its address range. An overlap with an interface of the hypervisor is not detected here,
// but by libvirt when the network starts.
func (p Plan) validateRange(inventories map[string]provider.Inventory) error {
	if !p.Network.Mode.Ours() {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(inventories)) {
		net := inventories[name].Network
		there := net != nil && net.CIDR == p.Network.CIDR.Masked()
		if !p.usesHypervisor(name) || there && net.Active {
			continue
		}
		for _, r := range inventories[name].Ranges {
			if !r.CIDR.Overlaps(p.Network.CIDR) || there && !r.Active {
				continue
			}
			return &PlanError{
				Text: fmt.Sprintf("hypervisor %s: the address range is taken: network %s needs %s, and network %s has %s", name, p.Network.Name, p.Network.CIDR, r.Network, r.CIDR),
				Fix:  "choose another cluster.network.cidr, or remove that network",
			}
		}
	}
	return nil
}
