package machine

import (
	"cmp"
	"fmt"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"maps"
	"slices"
	"strings"
)

// locatedMachine is an observed machine and the hypervisor that it is on.
type locatedMachine struct {
	provider.Actual
	hypervisor string
}

// indexMachines returns the observed machines by node. If a node has machines on several hypervisors, the
// machine on the recorded hypervisor is in the map, and the other machines are returned as duplicates.
func indexMachines(inventories map[string]provider.Inventory, recorded map[string]Recorded) (map[string]locatedMachine, []locatedMachine) {
	out := map[string]locatedMachine{}
	var duplicates []locatedMachine
	for _, name := range slices.Sorted(maps.Keys(inventories)) {
		for _, m := range inventories[name].Machines {
			f := locatedMachine{m, name}
			old, twice := out[m.Node]
			switch {
			case !twice:
				out[m.Node] = f
			case recorded[m.Node].Hypervisor == name:
				out[m.Node] = f
				duplicates = append(duplicates, old)
			default:
				duplicates = append(duplicates, f)
			}
		}
	}
	return out, duplicates
}

// mergeRecorded returns the recorded machines. A value that the record does not have is taken from the observed
// machine.
func mergeRecorded(recorded map[string]Recorded, existing map[string]locatedMachine) map[string]Recorded {
	out := map[string]Recorded{}
	maps.Copy(out, recorded)
	for node, f := range existing {
		k := out[node]
		k.exists = true
		k.MAC = cmp.Or(k.MAC, f.MAC)
		if !k.Address.IsValid() {
			k.Address = f.Address
		}
		k.Image.Hash = cmp.Or(k.Image.Hash, f.Image)
		out[node] = k
	}
	return out
}

// validateDistinctHosts returns an error if two names refer to one hypervisor. Otherwise each of the
// hypervisor's machines would be observed twice and removed once as a duplicate.
func validateDistinctHosts(inventories map[string]provider.Inventory, closed map[string]bool) error {
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
		e := &PlanError{
			Text: fmt.Sprintf("hypervisors %s and %s are the same hypervisor: both are on host %s and run the same kind of machines", other, name, strings.Fields(h.host)[0]),
			Fix:  "keep one of them in cluster.hypervisors",
		}
		for old, now := range map[string]string{other: name, name: other} {
			if closed[old] {
				e.Text += fmt.Sprintf("; its machines are recorded on %s", old)
				e.Fix = fmt.Sprintf("call it %s again in cluster.hypervisors, not %s", old, now)
			}
		}
		return e
	}
	return nil
}

// validateNetworkOwner returns an error if a hypervisor has a network with our network's name that this
// cluster does not own. This error also occurs after the state folder was lost, because the cluster then gets
// another id.
func validateNetworkOwner(inventories map[string]provider.Inventory, o Options) error {
	for _, name := range slices.Sorted(maps.Keys(inventories)) {
		if net := inventories[name].Network; o.Network.Mode.Ours() && net != nil && !net.Ours {
			if net.Owner != "" {
				return &PlanError{
					Text: fmt.Sprintf("hypervisor %s already has a network %s, which nixbench created for %s; this cluster has the id %s", name, o.Network.Name, net.Owner, o.Cluster.ID),
					Fix: fmt.Sprintf("run nixbench destroy with the state folder of that cluster; if that folder is lost, remove the machines with its id by hand, then the network: virsh net-destroy %[1]s; virsh net-undefine %[1]s; or choose another cluster.network.name",
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

// validateRecordedHypervisors returns an error if a node's machine is recorded on a hypervisor that was not
// surveyed. Otherwise the plan would create a second machine for the node.
func validateRecordedHypervisors(desired []Desired, inventories map[string]provider.Inventory, recorded map[string]Recorded) error {
	for _, w := range desired {
		k := recorded[w.Node]
		if _, surveyed := inventories[k.Hypervisor]; k.Image.Hash != "" && !surveyed {
			return &PlanError{
				Text: fmt.Sprintf("%s: its machine is on hypervisor %s, which the hive no longer names", w.Node, k.Hypervisor),
				Fix: fmt.Sprintf("add it to cluster.hypervisors again, or remove the machine first: nixbench destroy --on %s; or, if the hypervisor is permanently lost: nixbench destroy --forget-hypervisor %s",
					w.Node, k.Hypervisor),
			}
		}
	}
	return nil
}
