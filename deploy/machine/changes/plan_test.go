package changes

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
)

const gib = 1 << 30

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func someNetwork(cidr string) provider.Network {
	return provider.Network{Name: "net", Mode: provider.NAT, CIDR: netip.MustParsePrefix(cidr)}
}

// desired returns n machines of a role with 1 GiB each.
func desired(role string, n int) []Desired {
	var out []Desired
	for i := 1; i <= n; i++ {
		out = append(out, Desired{Spec: provider.Spec{Node: fmt.Sprintf("%s-%d", role, i), Role: role, Index: i, VCPUs: 2, Memory: gib, Disk: 10 * gib}})
	}
	return out
}

// on restricts machines to hypervisors.
func on(all []Desired, hypervisors ...string) []Desired {
	for i := range all {
		all[i].On = hypervisors
	}
	return all
}

// observedAs returns the observed machine that matches w, at that address.
func observedAs(w Desired, at string, change ...func(*provider.Actual)) provider.Actual {
	f := provider.Actual{Node: w.Node, Role: w.Role, MAC: provider.MAC("c", w.Node), Address: addr(at), VCPUs: w.VCPUs, Memory: w.Memory, Image: "old", State: provider.Running}
	f.Definition = w.specAt(Place{MAC: f.MAC}, provider.Image{Hash: "old"}).Definition()
	for _, c := range change {
		c(&f)
	}
	return f
}

// recorded returns what the state records of machines.
func recorded(at string, found ...provider.Actual) map[string]state.Machine {
	out := map[string]state.Machine{}
	for _, f := range found {
		out[f.Node] = state.Machine{Hypervisor: at, MAC: f.MAC, Address: f.Address, Image: &provider.Image{Hash: f.Image}}
	}
	return out
}

// created marks the machines as completely created.
func created(all map[string]state.Machine) map[string]state.Machine {
	for node, k := range all {
		k.Created = &time.Time{}
		all[node] = k
	}
	return all
}

func TestMake(t *testing.T) {
	w := desired("w", 3)
	one, two := observedAs(w[0], "10.0.0.2"), observedAs(w[1], "10.0.0.3")
	ready := &provider.ActualNetwork{Ours: true, Active: true, CIDR: netip.MustParsePrefix("10.0.0.0/24"), Reservations: []provider.Reservation{
		{Node: "w-1", MAC: one.MAC, Address: one.Address}, {Node: "w-2", MAC: two.MAC, Address: two.Address},
	}}
	big := append([]Desired{w[0]}, w[1:]...)
	big[0].Memory, big[0].VCPUs = 2*gib, 4
	off := func(f *provider.Actual) { f.State = provider.Off }
	tests := []struct {
		name        string
		desired     []Desired
		inventories map[string]provider.Inventory
		known       map[string]state.Machine
		options     func(*Options)
		want        []string
	}{
		{
			name: "from nothing", desired: w[:2],
			inventories: map[string]provider.Inventory{"a": {FreeMemory: 8 * gib}},
			want:        []string{"create w-1 on a 10.0.0.2", "create w-2 on a 10.0.0.3"},
		},
		{
			name: "nothing to do", desired: w[:2],
			inventories: map[string]provider.Inventory{"a": {Machines: []provider.Actual{one, two}, Network: ready}},
			known:       recorded("a", one, two),
			want:        []string{"keep w-1 on a 10.0.0.2", "keep w-2 on a 10.0.0.3"},
		},
		{
			name: "the network is off", desired: w[:2],
			inventories: map[string]provider.Inventory{"a": {Machines: []provider.Actual{one, two}, Network: &provider.ActualNetwork{Ours: true, Reservations: ready.Reservations}}},
			known:       recorded("a", one, two),
			want:        []string{"keep w-1 on a 10.0.0.2", "keep w-2 on a 10.0.0.3"},
		},
		{
			name: "one more", desired: w,
			inventories: map[string]provider.Inventory{"a": {FreeMemory: gib, Machines: []provider.Actual{one, two}, Network: ready}},
			known:       recorded("a", one, two),
			want:        []string{"keep w-1 on a 10.0.0.2", "keep w-2 on a 10.0.0.3", "create w-3 on a 10.0.0.4"},
		},
		{
			name: "one fewer", desired: w[:1],
			inventories: map[string]provider.Inventory{"a": {Machines: []provider.Actual{one, two}, Network: ready}},
			known:       recorded("a", one, two),
			want:        []string{"keep w-1 on a 10.0.0.2", "remove w-2 on a 10.0.0.3: the hive no longer contains it"},
		},
		{
			name: "some nodes only: nothing is removed", desired: append(slices.Clone(w[:1]), w[2]),
			inventories: map[string]provider.Inventory{"a": {FreeMemory: gib, Machines: []provider.Actual{one, two}, Network: ready}},
			known:       recorded("a", one, two),
			options:     func(o *Options) { o.Selected = func(n string) bool { return n == "w-3" } },
			want:        []string{"create w-3 on a 10.0.0.4"},
		},
		{
			name: "a provider that does not define machines", desired: big[:1],
			inventories: map[string]provider.Inventory{"a": {Network: ready, Machines: []provider.Actual{observedAs(w[0], "10.0.0.2", func(f *provider.Actual) { f.Definition = "" })}}},
			known:       recorded("a", one),
			want:        []string{"keep w-1 on a 10.0.0.2"},
		},
		{
			name: "a machine that is not recorded", desired: w[:1],
			inventories: map[string]provider.Inventory{"a": {Machines: []provider.Actual{one, two}, Network: ready}},
			known:       recorded("a", one),
			want:        []string{"keep w-1 on a 10.0.0.2", "remove w-2 on a 10.0.0.3: left by an interrupted run"},
		},
		{
			name: "off, incomplete", desired: w[:2],
			inventories: map[string]provider.Inventory{"a": {FreeMemory: 8 * gib, Network: ready, Machines: []provider.Actual{
				observedAs(w[0], "10.0.0.2", off), {Node: "w-2", State: provider.Incomplete},
			}}},
			known: recorded("a", one, two),
			want:  []string{"start w-1 on a 10.0.0.2: it is off", "finish w-2 on a 10.0.0.3: a run was interrupted while it created or removed the machine"},
		},
		{
			name: "created: the domain, the disk, and both were removed by another program", desired: w,
			inventories: map[string]provider.Inventory{"a": {FreeMemory: 8 * gib, Network: ready, Machines: []provider.Actual{
				{Node: "w-1", State: provider.Incomplete, HasDisk: true}, {Node: "w-2", State: provider.Incomplete},
			}}},
			known: created(recorded("a", one, two, observedAs(w[2], "10.0.0.4"))),
			want: []string{
				"start w-1 on a 10.0.0.2: its domain was removed from hypervisor a, and is defined again around its disk",
				"create w-2 on a 10.0.0.3: its disk is no longer on hypervisor a, so it is created again without its data (asks)",
				"create w-3 on a 10.0.0.4: its disk is no longer on hypervisor a, so it is created again without its data (asks)",
			},
		},
		{
			name: "paused, crashed, crashed with other sizes", desired: append(slices.Clone(w[:2]), Desired{Spec: provider.Spec{Node: "w-3", Role: "w", VCPUs: 3, Memory: gib}}),
			inventories: map[string]provider.Inventory{"a": {FreeMemory: 8 * gib, Network: ready, Machines: []provider.Actual{
				observedAs(w[0], "10.0.0.2", func(f *provider.Actual) { f.State = provider.Paused }), observedAs(w[1], "10.0.0.3", func(f *provider.Actual) { f.State = provider.Crashed }),
				observedAs(w[2], "10.0.0.4", func(f *provider.Actual) { f.State = provider.Crashed }),
			}}},
			want: []string{"resume w-1 on a 10.0.0.2: it is paused", "start w-2 on a 10.0.0.3: it has crashed", "start w-3 on a 10.0.0.4: vcpus 2 → 3"},
		},
		{
			name: "other sizes", desired: big[:2],
			inventories: map[string]provider.Inventory{"a": {Machines: []provider.Actual{one, two}, Network: ready}},
			known:       recorded("a", one, two),
			want:        []string{"restart w-1 on a 10.0.0.2: vcpus 2 → 4, memory 1.0 GiB → 2.0 GiB", "keep w-2 on a 10.0.0.3"},
		},
		{
			name: "another image, not asked for", desired: w[:1],
			inventories: map[string]provider.Inventory{"a": {Machines: []provider.Actual{one}, Network: ready}},
			known:       recorded("a", one),
			options: func(o *Options) {
				o.Images = map[ImageKey]provider.Image{{Role: "w"}: {Hash: "new"}}
			},
			want: []string{"keep w-1 on a 10.0.0.2"},
		},
		{
			name: "another image", desired: w[:1],
			inventories: map[string]provider.Inventory{"a": {Machines: []provider.Actual{one}, Network: ready}},
			known:       recorded("a", one),
			options: func(o *Options) {
				o.Recreate, o.Images = true, map[ImageKey]provider.Image{{Role: "w"}: {Hash: "new"}}
			},
			want: []string{"recreate w-1 on a 10.0.0.2: image old → new"},
		},
		{
			name: "spread by role, then by memory", desired: append(desired("w", 3), desired("cp", 1)...),
			inventories: map[string]provider.Inventory{"a": {FreeMemory: 3 * gib}, "b": {FreeMemory: 8 * gib}},
			want:        []string{"create w-1 on b 10.0.0.2", "create w-2 on a 10.0.0.3", "create w-3 on b 10.0.0.4", "create cp-1 on b 10.0.0.5"},
		},
		{
			name: "pinned: by role, regardless of memory elsewhere", desired: append(on(desired("w", 2), "a"), desired("cp", 1)...),
			inventories: map[string]provider.Inventory{"a": {FreeMemory: 2 * gib}, "b": {FreeMemory: 8 * gib}},
			want:        []string{"create w-1 on a 10.0.0.2", "create w-2 on a 10.0.0.3", "create cp-1 on b 10.0.0.4"},
		},
		{
			name: "pinned to several", desired: on(desired("w", 3), "a", "b"),
			inventories: map[string]provider.Inventory{"a": {FreeMemory: 8 * gib}, "b": {FreeMemory: 7 * gib}, "c": {FreeMemory: 80 * gib}},
			want:        []string{"create w-1 on a 10.0.0.2", "create w-2 on b 10.0.0.3", "create w-3 on a 10.0.0.4"},
		},
		{
			name: "pinned elsewhere: it is not moved, and the reason is given", desired: on(desired("w", 2), "b"),
			inventories: map[string]provider.Inventory{"a": {FreeMemory: gib, Machines: []provider.Actual{one}, Network: ready}, "b": {FreeMemory: gib}},
			known:       recorded("a", one),
			want: []string{"keep w-1 on a 10.0.0.2: it is not moved, although roles.w.hypervisors does not contain a: to move it, run nixbench destroy --on w-1, then nixbench apply",
				"create w-2 on b 10.0.0.3"},
		},
		{
			name: "pinned elsewhere and recreated: on the same hypervisor", desired: on(desired("w", 1), "b"),
			inventories: map[string]provider.Inventory{"a": {Machines: []provider.Actual{one}, Network: ready}, "b": {FreeMemory: gib}},
			known:       recorded("a", one),
			options: func(o *Options) {
				o.Recreate, o.Images = true, map[ImageKey]provider.Image{{Role: "w"}: {Hash: "new"}}
			},
			want: []string{"recreate w-1 on a 10.0.0.2: image old → new"},
		},
		{
			name: "machines stay where they are", desired: w[:2],
			inventories: map[string]provider.Inventory{"a": {FreeMemory: gib, Machines: []provider.Actual{one}, Network: ready}, "b": {FreeMemory: gib}},
			known:       recorded("a", one),
			want:        []string{"keep w-1 on a 10.0.0.2", "create w-2 on b 10.0.0.3"},
		},
		{
			name: "addresses of other machines", desired: w[:1],
			inventories: map[string]provider.Inventory{"a": {FreeMemory: gib, Network: &provider.ActualNetwork{
				Ours: true, Reservations: []provider.Reservation{{MAC: "52:54:00:00:00:09", Address: addr("10.0.0.2")}},
				Leases: []provider.Lease{{MAC: "52:54:00:00:00:08", Address: addr("10.0.0.3")}},
			}}},
			options: func(o *Options) { o.Fixed = map[netip.Addr]string{addr("10.0.0.4"): "db"} },
			want:    []string{"create w-1 on a 10.0.0.5"},
		},
		{
			name: "a recorded address of a node without a machine is replaced", desired: w[:2],
			inventories: map[string]provider.Inventory{"a": {FreeMemory: 8 * gib, Network: &provider.ActualNetwork{Ours: true, Leases: []provider.Lease{{MAC: "52:54:00:00:00:08", Address: addr("10.0.0.2")}}}}},
			known:       map[string]state.Machine{"w-1": {Address: addr("10.0.0.2")}, "w-2": {Address: addr("10.0.0.9")}},
			want:        []string{"create w-1 on a 10.0.0.3", "create w-2 on a 10.0.0.9"},
		},
		{
			name: "an existing network", desired: w[:1],
			inventories: map[string]provider.Inventory{"a": {FreeMemory: gib, Network: &provider.ActualNetwork{Active: true}}},
			options:     func(o *Options) { o.Network = provider.Network{Name: "lan", Mode: provider.Existing} },
			want:        []string{"create w-1 on a invalid IP"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o := Options{Cluster: provider.Cluster{Name: "c", ID: "1"}, Network: someNetwork("10.0.0.0/24"), Recorded: test.known}
			if test.options != nil {
				test.options(&o)
			}
			p, err := Make(test.desired, test.inventories, o)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range p.Changes {
				text := fmt.Sprintf("%s %s on %s %s", c.Action, c.Node, c.Hypervisor, c.Address)
				if c.Why != "" {
					text += ": " + c.Why
				}
				if c.Action == Create && c.Disturbs() {
					text += " (asks)"
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if test.name == "nothing to do" && slices.ContainsFunc(p.Changes, func(c Change) bool { return c.Action != Keep }) {
				t.Errorf("it does: %v", p)
			}
		})
	}
}

func TestMakeRefuses(t *testing.T) {
	w := desired("w", 8)
	one := observedAs(w[0], "10.0.0.2")
	for _, test := range []struct {
		name        string
		desired     []Desired
		inventories map[string]provider.Inventory
		known       map[string]state.Machine
		cidr        string
		closed      string
		want        string
	}{
		{
			name: "no memory", desired: w[:3], inventories: map[string]provider.Inventory{"a": {FreeMemory: gib}, "b": {FreeMemory: gib / 2}},
			want: "w-2: no hypervisor has 1.0 GiB of memory left: a has 0 B, b has 512.0 MiB",
		},
		{
			name: "range exhausted", desired: w, cidr: "10.0.0.0/29", inventories: map[string]provider.Inventory{"a": {FreeMemory: 8 * gib}},
			want: "network net: 10.0.0.0/29 has no free address for w-6",
		},
		{
			name: "another range", desired: w[:1], cidr: "10.9.0.0/24", inventories: map[string]provider.Inventory{"a": {Machines: []provider.Actual{one}}}, known: recorded("a", one),
			want: "w-1: its machine has the address 10.0.0.2, which is not in 10.9.0.0/24",
		},
		{
			name: "leased to another", desired: w[:1], known: recorded("a", one),
			inventories: map[string]provider.Inventory{"a": {Machines: []provider.Actual{one}, Network: &provider.ActualNetwork{Ours: true, Leases: []provider.Lease{{MAC: "52:54:00:00:00:08", Address: one.Address}}}}},
			want:        "w-1: its address 10.0.0.2 on network net is taken: on hypervisor a it is leased to 52:54:00:00:00:08",
		},
		{
			name: "no memory where it is pinned to", desired: on(desired("w", 1), "a"), inventories: map[string]provider.Inventory{"a": {FreeMemory: gib / 2}, "b": {FreeMemory: gib}},
			want: "w-1: no hypervisor has 1.0 GiB of memory left: a has 512.0 MiB",
		},
		{
			name: "pinned to an unknown hypervisor", desired: on(desired("w", 1), "c"), inventories: map[string]provider.Inventory{"a": {FreeMemory: gib}, "b": {FreeMemory: gib}},
			want: "roles.w.hypervisors: cluster.hypervisors has no c, only a, b",
		},
		{
			name: "pinned to a hypervisor that the hive no longer contains", desired: on(desired("w", 1), "b"), closed: "b",
			inventories: map[string]provider.Inventory{"a": {FreeMemory: gib}, "b": {FreeMemory: gib}},
			want:        "roles.w.hypervisors: cluster.hypervisors has no b, only a",
		},
		{
			name: "foreign network", desired: w[:1], inventories: map[string]provider.Inventory{"a": {FreeMemory: gib, Network: &provider.ActualNetwork{Active: true}}},
			want: "hypervisor a already has a network net, which does not belong to this cluster",
		},
		{
			name: "foreign machine", desired: w[:1], inventories: map[string]provider.Inventory{"a": {FreeMemory: gib, Foreign: []string{"c-w-1"}}},
			want: "w-1: hypervisor a already has a machine c-w-1, which does not belong to this cluster",
		},
		{
			name: "a hypervisor twice", desired: w[:1], known: recorded("a", one),
			inventories: map[string]provider.Inventory{"a": {Host: "h 1", Kind: provider.VM, Machines: []provider.Actual{one}}, "b": {Host: "h 1", Kind: provider.VM, Machines: []provider.Actual{one}}},
			want:        "hypervisors a and b are the same hypervisor: both are on host h and run the same kind of machines",
		},
		{
			name: "two machines of one node", desired: w[:1], known: recorded("b", one),
			inventories: map[string]provider.Inventory{"a": {Machines: []provider.Actual{one}}, "b": {Machines: []provider.Actual{one}}},
			want:        "w-1: it has two machines, on hypervisor a and on hypervisor b",
		},
		{
			name: "one hardware address for two nodes", desired: w[:2], inventories: map[string]provider.Inventory{"a": {FreeMemory: 8 * gib}},
			known: map[string]state.Machine{"w-1": {MAC: provider.MAC("c", "w-2")}},
			want:  "w-1 and w-2 have the same hardware address 52:54:",
		},
		{
			name: "two drivers of a host share its memory", desired: w[:2],
			inventories: map[string]provider.Inventory{"a": {Host: "h 1", Kind: provider.VM, FreeMemory: gib}, "b": {Host: "h 1", Kind: provider.Container, FreeMemory: gib}},
			want:        "w-2: no hypervisor has 1.0 GiB of memory left: a has 0 B, b has 0 B",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.cidr == "" {
				test.cidr = "10.0.0.0/24"
			}
			_, err := Make(test.desired, test.inventories, Options{Cluster: provider.Cluster{Name: "c"}, Network: someNetwork(test.cidr), Recorded: test.known, Closed: map[string]bool{test.closed: true}})
			var bad *PlanError
			if !errors.As(err, &bad) || !strings.HasPrefix(bad.Text, test.want) || bad.Fix == "" {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

func TestDisturbs(t *testing.T) {
	for _, a := range []Action{Create, Keep, Start, Resume, Finish, Restart, Recreate, Remove} {
		for _, kind := range []provider.Kind{provider.VM, provider.Container} {
			want := a == Restart || a == Recreate || a == Remove
			if got := (Change{Action: a, Kind: kind}).Disturbs(); got != want {
				t.Errorf("%s a %s: %t, want %t", a, kind, got, want)
			}
		}
	}
}

func TestMAC(t *testing.T) {
	first := provider.MAC("c", "n")
	if first != provider.MAC("c", "n") || first == provider.MAC("d", "n") || !strings.HasPrefix(first, "52:54:") || len(first) != 17 {
		t.Error(first)
	}
	// No two of a thousand nodes have the same address.
	seen := map[string]bool{}
	for _, w := range desired("w", 1000) {
		mac := provider.MAC("c", w.Node)
		if seen[mac] {
			t.Fatalf("%s twice", mac)
		}
		seen[mac] = true
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]uint64{"1K": 1 << 10, "512M": 512 << 20, "4G": 4 << 30, "2T": 2 << 40, "99999999999999T": math.MaxInt64} {
		if got := provider.ParseSize(text); got != want {
			t.Errorf("%q: %d", text, got)
		}
	}
}

// Scaling up and down in any order gives the remaining nodes the same addresses.
func TestAddressesAreStable(t *testing.T) {
	known := map[string]state.Machine{}
	var machines []provider.Actual
	for _, n := range []int{3, 5, 2, 4} {
		all := desired("w", n)
		p, err := Make(all, map[string]provider.Inventory{"a": {Kind: provider.VM, FreeMemory: 64 * gib, Machines: machines}}, Options{Cluster: provider.Cluster{Name: "c"}, Network: someNetwork("10.0.0.0/24"), Recorded: known})
		if err != nil {
			t.Fatal(err)
		}
		machines = nil
		for i, place := range p.Places {
			if want := addr(fmt.Sprintf("10.0.0.%d", i+2)); place.Address != want {
				t.Errorf("%d nodes: %s has %s, want %s", n, place.Node, place.Address, want)
			}
			machines = append(machines, observedAs(all[i], place.Address.String()))
		}
		known = recorded("a", machines...)
	}
}

// A hypervisor that was renamed in the hive is not a second one. Otherwise each of its machines would be found twice.
func TestRenamedHypervisor(t *testing.T) {
	w := desired("w", 1)
	one := observedAs(w[0], "10.0.0.2")
	inventory := provider.Inventory{Host: "h 1", Kind: provider.VM, Machines: []provider.Actual{one}}
	_, err := Make(w, map[string]provider.Inventory{"old": inventory, "new": inventory}, Options{
		Cluster: provider.Cluster{Name: "c"}, Network: someNetwork("10.0.0.0/24"), Recorded: recorded("old", one), Closed: map[string]bool{"old": true},
	})
	var bad *PlanError
	if !errors.As(err, &bad) || !strings.Contains(bad.Fix, "the name under which they were created") {
		t.Errorf("%v", err)
	}
}

// Each hypervisor has the reservations of all machines, also of those that will be removed.
func TestReservations(t *testing.T) {
	all := desired("w", 3)
	one, two, three := observedAs(all[0], "10.0.0.2"), observedAs(all[1], "10.0.0.3"), observedAs(all[2], "10.0.0.4")
	p, err := Make(all[:2], map[string]provider.Inventory{"a": {Machines: []provider.Actual{one, three}}, "b": {Machines: []provider.Actual{two}}},
		Options{Cluster: provider.Cluster{Name: "c"}, Network: someNetwork("10.0.0.0/24")})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range p.Reservations() {
		got = append(got, r.Node+" "+r.Address.String())
	}
	if diff := cmp.Diff([]string{"w-1 10.0.0.2", "w-2 10.0.0.3", "w-3 10.0.0.4"}, got); diff != "" {
		t.Error(diff)
	}
}
