package machine

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/machine/fake"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
)

// An observer reports machines that are paused, off or gone, and those that are emulated.
func TestObserve(t *testing.T) {
	kvm, tcg := fake.New(), fake.New()
	tcg.NoKVM = true
	hosts := map[string]*fake.Hypervisor{"kvm": kvm, "tcg": tcg}
	recorded := &state.State{Cluster: &state.Cluster{ID: "1", Hypervisors: map[string]provider.Hypervisor{"kvm": {}, "tcg": {}}}, Machines: map[string]state.Machine{}}
	c := provider.Cluster{Name: "c", ID: "1"}
	for node, name := range map[string]string{"a": "kvm", "b": "kvm", "d": "tcg", "gone": "tcg"} {
		recorded.Machines[node] = state.Machine{Hypervisor: name}
		if node == "gone" {
			continue
		}
		image := provider.Image{Hash: "h"}
		if err := hosts[name].Prepare(t.Context(), c, provider.HostSetup{Network: provider.Network{Name: "n", Mode: provider.Bridge}, Images: []provider.Image{image}}); err != nil {
			t.Fatal(err)
		}
		if err := hosts[name].Ensure(t.Context(), c, provider.Network{Name: "n", Mode: provider.Bridge}, provider.Spec{Node: node, Image: image, NewDisks: true}); err != nil {
			t.Fatal(err)
		}
	}
	open := func(name string, _ provider.Hypervisor) (provider.Provider, error) {
		return hosts[name], nil
	}
	o, err := NewObserver(open, "c", recorded)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	kvm.Pause("c-b")
	states, err := o.States(t.Context())
	if want := map[string]string{"a": "running", "b": "paused", "d": "running", "gone": "absent"}; err != nil || !maps.Equal(states, want) {
		t.Errorf("%v, %v; want %v", states, err, want)
	}
	created := time.Now()
	tcg.PowerOff("c-d")
	for node, want := range map[string]string{"a": "", "b": "", "d": "off", "gone": "gone"} {
		m := recorded.Machines[node]
		m.Created = &created
		if got := DescribeDown(t.Context(), open, "c", node, m, recorded.Cluster); got != want {
			t.Errorf("%s is %q, want %q", node, got, want)
		}
	}
	if emulated, _, err := o.Machines(t.Context()); err != nil || !slices.Equal(emulated, []string{"d"}) {
		t.Errorf("%v are emulated, %v", emulated, err)
	}
}
