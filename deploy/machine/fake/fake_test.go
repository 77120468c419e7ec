package fake_test

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"testing"

	"github.com/nixbench/nixbench/deploy/machine/fake"
	"github.com/nixbench/nixbench/deploy/machine/machinetest"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

func TestContract(t *testing.T) {
	machinetest.Run(t, machinetest.Setup{
		Open: func(t *testing.T) *machinetest.Host {
			h := fake.New()
			return &machinetest.Host{
				Provider:        h,
				Objects:         func(*testing.T) []string { return h.Objects() },
				AddDomain:       func(_ *testing.T, name string) { h.AddDomain(name) },
				AddGuest:        func(_ *testing.T, name, network string) { h.AddGuest(name, network) },
				RemoveDomain:    func(_ *testing.T, name string) { h.RemoveDomain(name) },
				RemoveDisk:      func(_ *testing.T, c provider.Cluster, node string) { h.RemoveDisk(c, node) },
				CopyMachine:     func(_ *testing.T, name, as string) { h.CopyMachine(name, as) },
				StopNetwork:     func(_ *testing.T, name string, keep bool) { h.StopNetwork(name, keep) },
				UndefineNetwork: func(_ *testing.T, name string) { h.UndefineNetwork(name) },
				AddNetwork:      func(_ *testing.T, name string, cidr netip.Prefix) { h.AddNetwork(name, cidr) },
				PowerOff:        func(_ *testing.T, name string) { h.PowerOff(name) },
				Pause:           func(_ *testing.T, name string) { h.Stop(name, provider.Paused) },
				Cut:             h.Cut,
				Boot: func(_ *testing.T, name string) string {
					if boot := h.Boot(name); boot != 0 {
						return strconv.Itoa(boot)
					}
					return ""
				},
			}
		},
		Images: func(*testing.T) [2]provider.Image {
			return [2]provider.Image{{Hash: "1111111111111111"}, {Hash: "2222222222222222"}}
		},
	})
}

// While a whole cluster is removed, Remove keeps the reservations, as the real provider does.
func TestClusterRemovalKeepsReservations(t *testing.T) {
	c := provider.Cluster{Name: "c", ID: "0123456789abcdef"}
	g := provider.HostSetup{
		Network:      provider.Network{Name: "n", Mode: provider.NAT, CIDR: netip.MustParsePrefix("10.0.0.0/24")},
		Reservations: []provider.Reservation{{Node: "n1", MAC: "52:54:00:aa:00:01", Address: netip.MustParseAddr("10.0.0.2")}},
	}
	for wholeCluster, want := range map[bool]int{false: 0, true: 1} {
		h := fake.New()
		if err := h.Prepare(t.Context(), c, g); err != nil {
			t.Fatal(err)
		}
		if wholeCluster {
			h.BeginClusterRemoval(c)
		}
		if err := h.Remove(t.Context(), c, "n1"); err != nil {
			t.Fatal(err)
		}
		inventory, err := h.Survey(t.Context(), c, g.Network)
		if err != nil || len(inventory.Network.Reservations) != want {
			t.Errorf("whole cluster %t: %+v, %v; want %d reservations", wholeCluster, inventory.Network, err, want)
		}
	}
}

func TestOnStepFailsOneStep(t *testing.T) {
	h := fake.New()
	h.OnStep(func(_ context.Context, s fake.Step) error {
		if s == (fake.Step{Op: "ensure", Node: "n1", Name: "start"}) {
			return provider.ErrFull
		}
		return nil
	})
	c := provider.Cluster{Name: "c", ID: "0123456789abcdef"}
	net := provider.Network{Name: "n", Mode: provider.NAT, CIDR: netip.MustParsePrefix("10.0.0.0/24")}
	image := provider.Image{Hash: "1111111111111111"}
	if err := h.Prepare(t.Context(), c, provider.HostSetup{Network: net, Images: []provider.Image{image}}); err != nil {
		t.Fatal(err)
	}
	var started []string
	h.OnStart(func(_ provider.Cluster, s provider.Spec) { started = append(started, s.Node) })
	err := h.Ensure(t.Context(), c, net, provider.Spec{Node: "n1", Image: image, NewDisks: true})
	var e *provider.Error
	if !errors.Is(err, provider.ErrFull) || !errors.As(err, &e) || e.Node != "n1" {
		t.Errorf("err = %v", err)
	}
	if err := h.Ensure(t.Context(), c, net, provider.Spec{Node: "n2", Image: image, NewDisks: true}); err != nil {
		t.Error(err)
	}
	if len(started) != 1 || started[0] != "n2" {
		t.Errorf("started %q", started)
	}
}
