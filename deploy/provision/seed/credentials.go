package seed

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/nixbench/nixbench/deploy/provision"
)

// File is one of a machine's.
type File struct {
	Name string
	Data []byte
}

// Where a machine has what it was told.
const (
	HostKeyPath = "/etc/ssh/ssh_host_ed25519_key"
	NodePath    = "/var/lib/nixbench/node.json"
)

// AuthorizedKeys are root's, one in a line; nil if there are none.
func AuthorizedKeys(i provision.Identity) []byte {
	var b strings.Builder
	for _, k := range i.AuthorizedKeys {
		b.WriteString(strings.TrimSpace(k) + "\n")
	}
	if b.Len() == 0 {
		return nil
	}
	return []byte(b.String())
}

// Tmpfiles is the credential tmpfiles.extra: systemd-tmpfiles writes the files that are
// in it, early in every boot. What is there already is left as it is: a machine is told who
// it is once.
func Tmpfiles(i provision.Identity) []byte {
	var b strings.Builder
	line := func(mode, path string, data []byte) {
		if len(data) > 0 {
			// ~: the argument is in base64.
			fmt.Fprintf(&b, "f~ %s %s root root - %s\n", path, mode, base64.StdEncoding.EncodeToString(data))
		}
	}
	line("0600", HostKeyPath, i.HostKey)
	if keys := AuthorizedKeys(i); keys != nil {
		b.WriteString("d /root/.ssh 0700 root root -\n")
		line("0600", "/root/.ssh/authorized_keys", keys)
	}
	if len(i.Node) > 0 {
		b.WriteString("d /var/lib/nixbench 0755 root root -\n")
		line("0644", NodePath, i.Node)
	}
	return []byte(b.String())
}

// Container is the folder of credentials that a container has.
func Container(node string, i provision.Identity) []File {
	files := []File{{"system.hostname", []byte(node + "\n")}, {"tmpfiles.extra", Tmpfiles(i)}}
	for _, f := range []File{
		{"ssh.authorized_keys.root", AuthorizedKeys(i)},
		{"nixbench.ssh_host_ed25519_key", i.HostKey},
		{"nixbench.node.json", i.Node},
	} {
		if len(f.Data) > 0 {
			files = append(files, f)
		}
	}
	return files
}
