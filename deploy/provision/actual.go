package provision

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// found is a machine, and where it is.
type locatedMachine struct {
	Actual
	hypervisor string
}

// machines are those that are there, by node. Of one that is in two places the one
// that is remembered counts; the others are doubles.
func indexMachines(sites map[string]Inventory, known map[string]Recorded) (map[string]locatedMachine, []locatedMachine) {
	out := map[string]locatedMachine{}
	var doubles []locatedMachine
	for _, name := range slices.Sorted(maps.Keys(sites)) {
		for _, m := range sites[name].Machines {
			f := locatedMachine{m, name}
			old, twice := out[m.Node]
			switch {
			case !twice:
				out[m.Node] = f
			case known[m.Node].Hypervisor == name:
				out[m.Node] = f
				doubles = append(doubles, old)
			default:
				doubles = append(doubles, f)
			}
		}
	}
	return out, doubles
}

// known is what is remembered, and what machines themselves say where it is not.
func mergeRecorded(remembered map[string]Recorded, there map[string]locatedMachine) map[string]Recorded {
	out := map[string]Recorded{}
	maps.Copy(out, remembered)
	for node, f := range there {
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

// twins refuses two names for one hypervisor: each machine there would be found twice, and
// one of the two removed.
func validateDistinctHosts(sites map[string]Inventory, closed map[string]bool) error {
	type hypervisor struct {
		host string
		kind Kind
	}
	first := map[hypervisor]string{}
	for _, name := range slices.Sorted(maps.Keys(sites)) {
		h := hypervisor{sites[name].Host, sites[name].Kind}
		other, twice := first[h]
		if h.host == "" || !twice {
			first[h] = name
			continue
		}
		e := &PlanError{
			Text: fmt.Sprintf("hypervisors %s and %s are one: both are on host %s and run the same kind of machines", other, name, strings.Fields(h.host)[0]),
			Fix:  "keep one of them in cluster.hypervisors",
		}
		for old, now := range map[string]string{other: name, name: other} {
			if closed[old] {
				e.Text += fmt.Sprintf("; its machines know it as %s", old)
				e.Fix = fmt.Sprintf("call it %s again in cluster.hypervisors, not %s", old, now)
			}
		}
		return e
	}
	return nil
}

// foreign refuses to plan on a network that somebody else has made under the name of ours. One
// who has lost the state folder comes here, too: without it the cluster has another id.
func validateNetworkOwner(sites map[string]Inventory, o Options) error {
	for _, name := range slices.Sorted(maps.Keys(sites)) {
		if net := sites[name].Network; o.Network.Mode.Ours() && net != nil && !net.Ours {
			if net.Owner != "" {
				return &PlanError{
					Text: fmt.Sprintf("hypervisor %s has a network %s already, which nixbench made for %s; this one has the id %s", name, o.Network.Name, net.Owner, o.Cluster.ID),
					Fix: fmt.Sprintf("run nixbench destroy with the state folder of that cluster; if that folder is lost, remove by hand what has its id, then the network: virsh net-destroy %[1]s; virsh net-undefine %[1]s; or choose another cluster.network.name",
						o.Network.Name),
				}
			}
			return &PlanError{
				Text: fmt.Sprintf("hypervisor %s has a network %s already, and it is not this cluster's", name, o.Network.Name),
				Fix:  `choose another cluster.network.name, or use the network as it is with cluster.network.mode = "existing"; if it is this cluster's, its state folder is missing: bring that back`,
			}
		}
	}
	return nil
}

// absent refuses to make a second machine for a node whose first one is on a
// hypervisor that was not looked at.
func validateRecordedHypervisors(wishes []Desired, sites map[string]Inventory, known map[string]Recorded) error {
	for _, w := range wishes {
		k := known[w.Node]
		if _, looked := sites[k.Hypervisor]; k.Image.Hash != "" && !looked {
			return &PlanError{
				Text: fmt.Sprintf("%s: its machine is on hypervisor %s, which the hive no longer names", w.Node, k.Hypervisor),
				Fix: fmt.Sprintf("put it back into cluster.hypervisors, or remove the machine first: nixbench destroy --on %s; or, if it is gone for good: nixbench destroy --forget-hypervisor %s",
					w.Node, k.Hypervisor),
			}
		}
	}
	return nil
}
