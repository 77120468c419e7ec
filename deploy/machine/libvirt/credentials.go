package libvirt

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// tmpfiles returns the content of the systemd credential tmpfiles.extra. Early in every boot, systemd-tmpfiles writes the files that
// this credential describes. It does not replace existing files, so a machine's identity is set only once.
func tmpfiles(i provider.Identity) []byte {
	var b strings.Builder
	line := func(mode, path string, data []byte) {
		if len(data) > 0 {
			// The flag ~ declares that the argument is base64.
			fmt.Fprintf(&b, "f~ %s %s root root - %s\n", path, mode, base64.StdEncoding.EncodeToString(data))
		}
	}
	line("0600", "/etc/ssh/ssh_host_ed25519_key", i.HostKey)
	b.WriteString("d /root/.ssh 0700 root root -\n")
	line("0600", "/root/.ssh/authorized_keys", []byte(i.AuthorizedKey+"\n"))
	if len(i.Node) > 0 {
		b.WriteString("d /var/lib/nixbench 0755 root root -\n")
		line("0644", "/var/lib/nixbench/node.json", i.Node)
	}
	return []byte(b.String())
}
