package changes

import (
	"fmt"
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
)

// capacity is a hypervisor's free memory and its number of machines.
type capacity struct {
	name   string
	memory *uint64        // free bytes; hypervisors of one host share the pointer
	roles  map[string]int // number of machines by role
}

// placeMachines chooses a hypervisor for each new machine: among the hypervisors with enough memory, the one with the fewest machines of
// the role; among several of these, the one with the most free memory. It does not move existing machines. Desired.On restricts the choice.
//
// Disk space is not considered: disks grow while they are written, so nixbench detects a full pool only when a write fails.
func (m *planner) placeMachines(created []Desired, kept map[string]Change) (map[string]string, error) {
	capacities := map[string]*capacity{}
	hosts := map[string]*uint64{}
	var open []*capacity
	for _, name := range m.names {
		s := m.inventories[name]
		left := hosts[s.Host]
		if left == nil || s.Host == "" {
			left = &s.FreeMemory
			hosts[s.Host] = left
		}
		*left = min(*left, s.FreeMemory)
		capacities[name] = &capacity{name: name, memory: left, roles: map[string]int{}}
		if !m.Closed[name] {
			open = append(open, capacities[name])
		}
	}
	for _, c := range kept {
		r := capacities[c.Hypervisor]
		r.roles[c.Role]++
		if c.Action == Start || c.Action == Finish || c.Action == Create {
			*r.memory -= min(*r.memory, c.spec.Memory)
		}
	}
	out := map[string]string{}
	for _, w := range created {
		var best *capacity
		var have []string
		for _, r := range open {
			if !w.isAllowedOn(r.name) {
				continue
			}
			have = append(have, fmt.Sprintf("%s has %s", r.name, event.Size(*r.memory)))
			switch {
			case *r.memory < w.Memory:
			case best == nil, r.roles[w.Role] < best.roles[w.Role],
				r.roles[w.Role] == best.roles[w.Role] && *r.memory > *best.memory:
				best = r
			}
		}
		if best == nil {
			more := ""
			if left := len(created) - len(out); left > 1 {
				more = fmt.Sprintf(" and %d more", left-1)
			}
			fix := fmt.Sprintf("choose a smaller roles.%[1]s.memory or roles.%[1]s.count, or more hypervisors for the role", w.Role)
			return nil, NewPlanError(fix, "%s%s: no hypervisor has %s of memory left: %s",
				w.Node, more, event.Size(w.Memory), strings.Join(have, ", "))
		}
		*best.memory -= w.Memory
		best.roles[w.Role]++
		out[w.Node] = best.name
	}
	return out, nil
}
