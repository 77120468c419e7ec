package machine

import (
	"fmt"
	"strings"

	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Forgotten is the outcome for a machine that is removed from the state because its hypervisor is permanently lost.
const Forgotten state.Outcome = "forgotten"

// PlanAbandon plans to remove a lost hypervisor and its machines from the state. It connects to no hypervisor,
// so the domains and disks on the lost hypervisor are not removed.
func (m *Manager) PlanAbandon(recorded *state.State, hypervisor string) *DestroyPlan {
	d := &DestroyPlan{abandoned: hypervisor, WholeCluster: true}
	for _, node := range nixeval.SortedNames(recorded.Machines) {
		s := recorded.Machines[node]
		if s.Hypervisor != hypervisor {
			d.WholeCluster = false
			continue
		}
		d.Removals = append(d.Removals, Removal{Node: node, Role: s.Role, Hypervisor: hypervisor, note: "its address and its host key are removed from the record"})
	}
	sortByNode(d.Removals)
	if len(d.Removals) > 0 {
		// The user needs this if the hypervisor becomes reachable again.
		h := recorded.Cluster.Hypervisors[hypervisor]
		var domains []string
		for _, machine := range d.Removals {
			domains = append(domains, clusterIdentity(m.Hive, recorded).MachineName(machine.Node))
		}
		left := fmt.Sprintf("left on %s, at %s: %s, with their disks, and the keys on them, in pool %s", hypervisor, h.URI, strings.Join(domains, ", "), h.Pool)
		if n := recorded.Cluster.Network; n.Mode.Ours() {
			left += ", and network " + n.Name
		}
		d.Remaining = []string{left}
	}
	return d
}

// abandonHypervisor removes a hypervisor from the state. It then writes the facts file again, so that this file
// contains only the machines that are still recorded.
func (w *destroyer) abandonHypervisor(hypervisor string) error {
	if err := w.Store.Update(func(s *state.State) error { delete(s.Cluster.Hypervisors, hypervisor); return nil }); err != nil {
		return err
	}
	return w.WriteFacts(w.Store.State())
}
