package changes

import (
	"fmt"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"maps"
	"slices"
	"strings"
)

// capacity is a hypervisor's free memory and its number of machines.
type capacity struct {
	name   string
	memory *uint64        // free bytes; hypervisors of one host share the pointer
	roles  map[string]int // number of machines by role
}

// placeMachines chooses a hypervisor for each new machine: among the hypervisors with enough memory, the
// one with the fewest machines of the role; among several of these, the one with the most free memory. It does not
// move existing machines. Desired.On restricts the choice.
//
// Disk space is not considered: disks grow while they are written, so nixbench detects a full pool only when
// a write fails.
func placeMachines(created []Desired, kept []Change, inventories map[string]provider.Inventory, closed map[string]bool) (map[string]string, error) {
	capacities := map[string]*capacity{}
	hosts := map[string]*uint64{}
	for name, s := range inventories {
		left := hosts[s.Host]
		if left == nil || s.Host == "" {
			left = &s.FreeMemory
			hosts[s.Host] = left
		}
		*left = min(*left, s.FreeMemory)
		capacities[name] = &capacity{name: name, memory: left, roles: map[string]int{}}
	}
	for _, c := range kept {
		r := capacities[c.Hypervisor]
		r.roles[c.Role]++
		if c.Action == Start || c.Action == Finish || c.Action == Create {
			*r.memory -= min(*r.memory, c.spec.Memory)
		}
	}
	order := slices.DeleteFunc(slices.Sorted(maps.Keys(capacities)), func(name string) bool { return closed[name] })
	out := map[string]string{}
	for _, w := range created {
		var best *capacity
		for _, name := range order {
			r := capacities[name]
			switch {
			case !w.isAllowedOn(name), *r.memory < w.Memory:
			case best == nil, r.roles[w.Role] < best.roles[w.Role],
				r.roles[w.Role] == best.roles[w.Role] && *r.memory > *best.memory:
				best = r
			}
		}
		if best == nil {
			return nil, newNoCapacityError(w, len(created)-len(out), order, capacities)
		}
		*best.memory -= w.Memory
		best.roles[w.Role]++
		out[w.Node] = best.name
	}
	return out, nil
}

func newNoCapacityError(w Desired, left int, order []string, capacities map[string]*capacity) error {
	var have []string
	for _, name := range order {
		if w.isAllowedOn(name) {
			have = append(have, fmt.Sprintf("%s has %s", name, provider.SizeText(*capacities[name].memory)))
		}
	}
	more := ""
	if left > 1 {
		more = fmt.Sprintf(" and %d more", left-1)
	}
	return &PlanError{
		Text: fmt.Sprintf("%s%s: no hypervisor has %s of memory left: %s", w.Node, more, provider.SizeText(w.Memory), strings.Join(have, ", ")),
		Fix:  fmt.Sprintf("choose a smaller roles.%[1]s.memory or roles.%[1]s.count, or more hypervisors for the role", w.Role),
	}
}

// isAllowedOn reports whether the machine may be created on a hypervisor.
func (w Desired) isAllowedOn(hypervisor string) bool {
	return len(w.On) == 0 || slices.Contains(w.On, hypervisor)
}
