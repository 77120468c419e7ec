package fake_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/nixbench/nixbench/deploy/machine/fake"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

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
