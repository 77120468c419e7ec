package libvirt

import (
	"testing"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

var person = provider.Identity{
	HostKey:       []byte("-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n-----END OPENSSH PRIVATE KEY-----\n"),
	AuthorizedKey: "ssh-ed25519 AAAA one",
	Node:          []byte(`{"name":"worker-1"}`),
}

func TestTmpfiles(t *testing.T) {
	const want = `f~ /etc/ssh/ssh_host_ed25519_key 0600 root root - LS0tLS1CRUdJTiBPUEVOU1NIIFBSSVZBVEUgS0VZLS0tLS0Kc2VjcmV0Ci0tLS0tRU5EIE9QRU5TU0ggUFJJVkFURSBLRVktLS0tLQo=
d /root/.ssh 0700 root root -
f~ /root/.ssh/authorized_keys 0600 root root - c3NoLWVkMjU1MTkgQUFBQSBvbmUK
d /var/lib/nixbench 0755 root root -
f~ /var/lib/nixbench/node.json 0644 root root - eyJuYW1lIjoid29ya2VyLTEifQ==
`
	if got := string(tmpfiles(person)); got != want {
		t.Errorf("got\n%s", got)
	}
}
