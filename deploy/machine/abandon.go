package machine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/state"
)

// Forgotten is the outcome for a machine that is removed from the state because its hypervisor is permanently lost.
const Forgotten state.Outcome = "forgotten"

// PlanAbandon plans to remove a lost hypervisor and its machines from the state. It connects to no hypervisor,
// so the domains and disks on the lost hypervisor are not removed.
func (m *Manager) PlanAbandon(recorded *state.State, hypervisor string) *DestroyPlan {
	d := &DestroyPlan{abandoned: hypervisor, WholeCluster: true}
	for _, node := range slices.Sorted(maps.Keys(recorded.Machines)) {
		s := recorded.Machines[node]
		if s.Hypervisor != hypervisor {
			d.WholeCluster = false
			continue
		}
		machine := Removal{Node: node, Role: s.Role, Hypervisor: hypervisor, note: "its host key is removed from the record"}
		if s.Address.IsValid() {
			machine.note = "its address " + s.Address.String() + " and its host key are removed from the record"
		}
		d.Removals = append(d.Removals, machine)
	}
	sortByNode(d.Removals)
	d.Remaining = m.describeRemaining(recorded, d)
	return d
}

// describeRemaining describes the domains, disks, network and keys that remain on the abandoned hypervisor. The
// user needs the description if the hypervisor becomes reachable again.
func (m *Manager) describeRemaining(recorded *state.State, d *DestroyPlan) []string {
	if len(d.Removals) == 0 {
		return nil
	}
	h := recorded.Cluster.Hypervisors[d.abandoned]
	var domains, keys []string
	for _, machine := range d.Removals {
		domains = append(domains, m.clusterIdentity(recorded).MachineName(machine.Node))
		for _, n := range m.Hive.Nodes {
			if n.Name == machine.Node {
				keys = append(keys, slices.Sorted(maps.Keys(m.Hive.Unit(n.Unit).Deployment.Keys))...)
			}
		}
	}
	out := []string{fmt.Sprintf("left on %s, at %s: %s, with their disks in pool %s", d.abandoned, h.URI, strings.Join(domains, ", "), h.Pool)}
	if n := recorded.Cluster.Network; n.Mode.Ours() {
		out[0] += ", and network " + n.Name
	}
	if len(keys) > 0 {
		slices.Sort(keys)
		out = append(out, "a person with access to their disks may have these keys: "+strings.Join(slices.Compact(keys), ", "))
	}
	return out
}

// abandonHypervisor removes a hypervisor from the state. It then writes the facts file again, so that this file
// contains only the machines that are still recorded.
func (w *destroyer) abandonHypervisor(hypervisor string) error {
	if err := w.Store.Update(func(s *state.State) error { delete(s.Cluster.Hypervisors, hypervisor); return nil }); err != nil {
		return err
	}
	return w.WriteFacts(w.Store.State())
}
