package fleet

import (
	"testing"

	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
)

// Machines on the network of another host are reached through it.
func TestJumpHost(t *testing.T) {
	m := state.Machine{Hypervisor: "h"}
	for _, test := range []struct{ uri, mode, want string }{
		{"qemu:///system", "nat", ""},
		{"qemu+unix:///system?socket=/x", "nat", ""},
		{"qemu+ssh://kvm1/system", "nat", "kvm1"},
		{"qemu+ssh://root@kvm1:2222/system", "isolated", "root@kvm1:2222"},
		{"qemu+ssh://[2001:db8::1]:2222/system", "nat", "[2001:db8::1]:2222"},
		{"qemu+ssh://kvm1/system", "bridge", ""},
		{"qemu+tls://kvm1/system", "nat", ""},
	} {
		got := jumpHostOf(m, &state.Cluster{Network: provider.Network{Mode: provider.Mode(test.mode)}, Hypervisors: map[string]provider.Hypervisor{"h": {URI: test.uri}}})
		if got != test.want {
			t.Errorf("%s, %s: %q, want %q", test.uri, test.mode, got, test.want)
		}
	}
}
