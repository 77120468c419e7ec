package fakeprovider_test

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"testing"

	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/provision/fakeprovider"
	"github.com/nixbench/nixbench/deploy/provision/provisiontest"
)

func TestContract(t *testing.T) {
	provisiontest.Run(t, provisiontest.Setup{
		Open: func(t *testing.T) *provisiontest.Host {
			h := fakeprovider.New()
			return &provisiontest.Host{
				Provider:        h,
				Objects:         func(*testing.T) []string { return h.Objects() },
				AddDomain:       func(_ *testing.T, name string) { h.AddDomain(name) },
				AddGuest:        func(_ *testing.T, name, network string) { h.AddGuest(name, network) },
				RemoveDomain:    func(_ *testing.T, name string) { h.RemoveDomain(name) },
				RemoveDisk:      func(_ *testing.T, c provision.Cluster, node string) { h.RemoveDisk(c, node) },
				CopyMachine:     func(_ *testing.T, name, as string) { h.CopyMachine(name, as) },
				StopNetwork:     func(_ *testing.T, name string, keep bool) { h.StopNetwork(name, keep) },
				UndefineNetwork: func(_ *testing.T, name string) { h.UndefineNetwork(name) },
				AddNetwork:      func(_ *testing.T, name string, cidr netip.Prefix) { h.AddNetwork(name, cidr) },
				PowerOff:        func(_ *testing.T, name string) { h.PowerOff(name) },
				Pause:           func(_ *testing.T, name string) { h.Stop(name, provision.Paused) },
				Cut:             h.Cut,
				Boot: func(_ *testing.T, name string) string {
					if boot := h.Boot(name); boot != 0 {
						return strconv.Itoa(boot)
					}
					return ""
				},
			}
		},
		Images: func(*testing.T) [2]provision.Image {
			return [2]provision.Image{{Hash: "1111111111111111"}, {Hash: "2222222222222222"}}
		},
	})
}

// While a whole cluster is removed, Remove keeps the reservations, as the real provider does.
func TestClusterRemovalKeepsReservations(t *testing.T) {
	c := provision.Cluster{Name: "c", ID: "0123456789abcdef"}
	g := provision.HostSetup{
		Network:      provision.Network{Name: "n", Mode: provision.NAT, CIDR: netip.MustParsePrefix("10.0.0.0/24")},
		Reservations: []provision.Reservation{{Node: "n1", MAC: "52:54:00:aa:00:01", Address: netip.MustParseAddr("10.0.0.2")}},
	}
	for wholeCluster, want := range map[bool]int{false: 0, true: 1} {
		h := fakeprovider.New()
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
	h := fakeprovider.New()
	h.OnStep(func(_ context.Context, s fakeprovider.Step) error {
		if s == (fakeprovider.Step{Op: "ensure", Node: "n1", Name: "start"}) {
			return provision.ErrFull
		}
		return nil
	})
	c := provision.Cluster{Name: "c", ID: "0123456789abcdef"}
	net := provision.Network{Name: "n", Mode: provision.NAT, CIDR: netip.MustParsePrefix("10.0.0.0/24")}
	image := provision.Image{Hash: "1111111111111111"}
	if err := h.Prepare(t.Context(), c, provision.HostSetup{Network: net, Images: []provision.Image{image}}); err != nil {
		t.Fatal(err)
	}
	var started []string
	h.OnStart(func(_ provision.Cluster, s provision.Spec) { started = append(started, s.Node) })
	err := h.Ensure(t.Context(), c, net, provision.Spec{Node: "n1", Image: image, NewDisks: true})
	var e *provision.Error
	if !errors.Is(err, provision.ErrFull) || !errors.As(err, &e) || e.Node != "n1" {
		t.Errorf("err = %v", err)
	}
	if err := h.Ensure(t.Context(), c, net, provision.Spec{Node: "n2", Image: image, NewDisks: true}); err != nil {
		t.Error(err)
	}
	if len(started) != 1 || started[0] != "n2" {
		t.Errorf("started %q", started)
	}
}
