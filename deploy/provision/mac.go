package provision

import (
	"crypto/sha256"
	"fmt"
)

// MAC is a node's hardware address: the same in every run, since it follows from the
// names of cluster and node. Of two nodes with the same hash, the later one in order
// gets the next one that is not taken.
func MAC(cluster, node string, taken func(mac string) bool) string {
	for n := 0; ; n++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", cluster, node, n))
		// 52:54 is locally administered, and not 52:54:00, which is what libvirt draws from.
		mac := fmt.Sprintf("52:54:%02x:%02x:%02x:%02x", sum[0]|1, sum[1], sum[2], sum[3])
		if taken == nil || !taken(mac) {
			return mac
		}
	}
}

// hardware gives every node its hardware address.
func assignMACs(wishes []Desired, cluster string, has map[string]Recorded) map[string]string {
	out := map[string]string{}
	owner := map[string]bool{}
	for _, k := range has {
		owner[k.MAC] = true
	}
	for _, w := range wishes {
		mac := has[w.Node].MAC
		if mac == "" {
			mac = MAC(cluster, w.Node, func(m string) bool { return owner[m] })
		}
		owner[mac] = true
		out[w.Node] = mac
	}
	return out
}
