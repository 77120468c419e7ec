package changes

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
)

// placeMachines chooses a hypervisor for each new machine: among the hypervisors with enough memory, the one with the fewest machines of
// the role; among several of these, the one with the most free memory. It does not move existing machines. Desired.On restricts the choice.
//
// Disk space is not considered: disks grow while they are written, so nixbench detects a full pool only when a write fails.
func (m *planner) placeMachines(created []Desired, kept map[string]Change) (map[string]string, error) {
	hostOf := func(name string) string { return cmp.Or(m.inventories[name].Host, "hypervisor "+name) }
	memory := map[string]uint64{} // free bytes by host, which hypervisors may share
	for _, name := range m.names {
		free, seen := memory[hostOf(name)]
		if memory[hostOf(name)] = m.inventories[name].FreeMemory; seen {
			memory[hostOf(name)] = min(free, m.inventories[name].FreeMemory)
		}
	}
	count := map[[2]string]int{} // number of machines by hypervisor and role
	place := func(name, role string, takes uint64) {
		count[[2]string{name, role}]++
		memory[hostOf(name)] -= min(memory[hostOf(name)], takes)
	}
	for _, c := range kept {
		takes := c.spec.Memory
		if c.Action != Start && c.Action != Finish && c.Action != Create {
			takes = 0 // it runs already
		}
		place(c.Hypervisor, c.Role, takes)
	}
	out := map[string]string{}
	for _, w := range created {
		var have []string
		best := ""
		for _, name := range m.names {
			if m.Closed[name] || !w.isAllowedOn(name) {
				continue
			}
			free, machines := memory[hostOf(name)], count[[2]string{name, w.Role}]
			have = append(have, fmt.Sprintf("%s has %s", name, event.Size(free)))
			if free < w.Memory {
				continue
			}
			fewer := cmp.Or(cmp.Compare(machines, count[[2]string{best, w.Role}]), cmp.Compare(memory[hostOf(best)], free))
			if best == "" || fewer < 0 {
				best = name
			}
		}
		if best == "" {
			fix := fmt.Sprintf("choose a smaller roles.%[1]s.memory or roles.%[1]s.count, or more hypervisors for the role", w.Role)
			return nil, NewPlanError(fix, "%s: no hypervisor has %s of memory left: %s", w.Node, event.Size(w.Memory), strings.Join(have, ", "))
		}
		place(best, w.Role, w.Memory)
		out[w.Node] = best
	}
	return out, nil
}
