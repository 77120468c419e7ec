package machine

import (
	"fmt"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"maps"
	"slices"
)

// describeCopies returns a warning for each domain that is a clone of one of this cluster's machines, so that
// the user does not mistake the clone for the machine. A clone with the same MAC gets the machine's address.
func describeCopies(inventories map[string]provider.Inventory, macs map[string]string) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(inventories)) {
		for _, c := range inventories[name].Copies {
			text := CopyText(name, c)
			if c.MAC != "" && c.MAC == macs[c.Node] {
				text += fmt.Sprintf("; it also has the MAC of %s, so both get the same address: change its MAC, or remove it", c.Node)
			}
			out = append(out, text)
		}
	}
	return out
}

// CopyText returns the message that a domain is a clone of a node's machine and is not changed.
func CopyText(hypervisor string, c provider.Copy) string {
	return fmt.Sprintf("hypervisor %s: machine %s is a copy of %s's machine that nixbench did not create; nixbench does not change it", hypervisor, c.Domain, c.Node)
}
