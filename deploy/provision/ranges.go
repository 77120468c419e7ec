package provision

import (
	"fmt"
	"maps"
	"slices"
)

// taken refuses to make or start a network of ours where another network of the hypervisor has some of its
// addresses. What the hypervisor's own interfaces have, libvirt finds when the network starts.
func (p Plan) validateRange(sites map[string]Inventory) error {
	if !p.Network.Mode.Ours() {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(sites)) {
		net := sites[name].Network
		there := net != nil && net.CIDR == p.Network.CIDR.Masked()
		if !p.usesHypervisor(name) || there && net.Active {
			continue
		}
		for _, r := range sites[name].Ranges {
			if !r.CIDR.Overlaps(p.Network.CIDR) || there && !r.Active {
				continue
			}
			return &PlanError{
				Text: fmt.Sprintf("hypervisor %s: the address range is taken: network %s wants %s, and network %s has %s", name, p.Network.Name, p.Network.CIDR, r.Network, r.CIDR),
				Fix:  "choose another cluster.network.cidr, or remove that network",
			}
		}
	}
	return nil
}
