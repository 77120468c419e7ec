package machine

import "github.com/nixbench/nixbench/deploy/machine/provider"

// assignMACs returns the hardware address of each node.
func assignMACs(desired []Desired, cluster string, recorded map[string]Recorded) map[string]string {
	out := map[string]string{}
	owner := map[string]bool{}
	for _, k := range recorded {
		owner[k.MAC] = true
	}
	for _, w := range desired {
		mac := recorded[w.Node].MAC
		if mac == "" {
			mac = provider.MAC(cluster, w.Node, func(m string) bool { return owner[m] })
		}
		owner[mac] = true
		out[w.Node] = mac
	}
	return out
}
