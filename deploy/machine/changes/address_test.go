package changes

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
)

// A machine may still use a leased address although another address is reserved for it now. No other machine
// gets the leased address until the lease has expired.
func TestLeasedAddressIsKept(t *testing.T) {
	w := desired("w", 3)
	mac := func(node string) string { return provider.MAC("c", node) }
	for name, test := range map[string]struct {
		leases []provider.Lease
		known  map[string]state.Machine
		want   []string
	}{
		"a lease of another machine of ours": {
			leases: []provider.Lease{{MAC: mac("w-2"), Address: addr("10.0.0.2")}},
			want:   []string{"create w-1 on a 10.0.0.3", "create w-2 on a 10.0.0.2", "create w-3 on a 10.0.0.4"},
		},
		"the address on record is leased to another machine of ours": {
			leases: []provider.Lease{{MAC: mac("w-3"), Address: addr("10.0.0.2")}},
			known:  map[string]state.Machine{"w-1": {Address: addr("10.0.0.2")}},
			want:   []string{"create w-1 on a 10.0.0.3", "create w-2 on a 10.0.0.4", "create w-3 on a 10.0.0.2"},
		},
		"a lease of a machine that the hive no longer has": {
			leases: []provider.Lease{{MAC: "52:54:00:00:00:01", Address: addr("10.0.0.2")}},
			known:  map[string]state.Machine{"w-9": {MAC: "52:54:00:00:00:01", Address: addr("10.0.0.9")}},
			want:   []string{"create w-1 on a 10.0.0.3", "create w-2 on a 10.0.0.4", "create w-3 on a 10.0.0.5"},
		},
		"its own lease": {
			leases: []provider.Lease{{MAC: mac("w-1"), Address: addr("10.0.0.7")}},
			known:  map[string]state.Machine{"w-1": {Address: addr("10.0.0.7")}},
			want:   []string{"create w-1 on a 10.0.0.7", "create w-2 on a 10.0.0.2", "create w-3 on a 10.0.0.3"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inventories := map[string]provider.Inventory{"a": {Kind: provider.VM, FreeMemory: 8 * gib, Network: &provider.ActualNetwork{Ours: true, Leases: test.leases}}}
			p, err := Make(w, inventories, Options{Cluster: provider.Cluster{Name: "c", ID: "1"}, Network: someNetwork("10.0.0.0/24"), Recorded: test.known})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range p.Changes {
				got = append(got, fmt.Sprintf("%s %s on %s %s", c.Action, c.Node, c.Hypervisor, c.Address))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
