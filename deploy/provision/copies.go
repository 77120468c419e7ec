package provision

import (
	"fmt"
	"maps"
	"slices"
)

// copies says which domains are copies of this cluster's machines, so that people do not take them
// for the machines. One with the MAC of a machine gets its address.
func warnOfCopies(sites map[string]Inventory, macs map[string]string) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(sites)) {
		for _, c := range sites[name].Copies {
			text := CopyText(name, c)
			if c.MAC != "" && c.MAC == macs[c.Node] {
				text += fmt.Sprintf("; it has the MAC of %s too, so both get one address: give it another MAC, or remove it", c.Node)
			}
			out = append(out, text)
		}
	}
	return out
}

// CopyText says that a domain is only a copy.
func CopyText(hypervisor string, c Copy) string {
	return fmt.Sprintf("hypervisor %s: machine %s is a copy of %s's machine that nixbench has not made; it is left alone", hypervisor, c.Domain, c.Node)
}
