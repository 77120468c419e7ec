package provider

import (
	"crypto/sha256"
	"fmt"
)

// MAC returns a node's hardware address. It is derived from the names of cluster and node, so it is the same in every
// run. If taken reports that another node has the address, MAC derives another address from the names.
func MAC(cluster, node string, taken func(mac string) bool) string {
	for n := 0; ; n++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", cluster, node, n))
		// 52:54 is a locally administered prefix. The third byte is odd, so the address is never in
		// 52:54:00, from which libvirt draws random addresses.
		mac := fmt.Sprintf("52:54:%02x:%02x:%02x:%02x", sum[0]|1, sum[1], sum[2], sum[3])
		if taken == nil || !taken(mac) {
			return mac
		}
	}
}
