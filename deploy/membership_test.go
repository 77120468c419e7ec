package deploy

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/provision/fakeprovider"
	"github.com/nixbench/nixbench/nixeval"
)

// together makes all nodes of the world members of an engine; control planes are cp-….
func (w *world) together(e engine.Engine) {
	w.engines = Engines{"sulky": func(engine.Cluster) engine.Engine { return e }}
	for i, u := range w.hive.Units {
		w.hive.Units[i].Deployment.Engine = &nixeval.Engine{Kind: "sulky", Role: u.Name}
	}
}

// A second machine of a node goes alone: the node stays what it is.
func TestSecondMachineGoesAlone(t *testing.T) {
	w := newWorld(t, map[string]int{"cp": 1, "w": 1})
	e := &sulky{}
	w.together(e)
	w.must(w.apply())
	e.members = map[string]engine.Status{"cp-1": {OneByOne: true}, "w-1": {}}
	e.did = nil

	w.second = fakeprovider.New()
	w.hive.Cluster.Hypervisors["second"] = nixeval.Hypervisor{URI: "fake://elsewhere/"}
	spec, _ := w.h.Spec("demo-cp-1")
	cluster := provision.Cluster{Name: "demo", ID: w.state().Cluster.ID}
	net := provision.Network{Name: "net", Mode: provision.NAT, CIDR: netip.MustParsePrefix("10.0.0.0/24")}
	if err := w.second.Prepare(t.Context(), cluster, provision.Ground{Network: net, Images: []provision.Image{spec.Image}}); err != nil {
		t.Fatal(err)
	}
	if err := w.second.Ensure(t.Context(), cluster, net, spec); err != nil {
		t.Fatal(err)
	}
	results, err := w.apply()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"remove cp-1 on second: a second machine of that node"}, w.asked); diff != "" {
		t.Error(diff)
	}
	if w.second.Boot("demo-cp-1") != 0 || w.h.Boot("demo-cp-1") == 0 || w.state().Nodes["cp-1"].Good == nil {
		t.Errorf("left: %q there, %q here", w.second.Things(), w.h.Things())
	}
	if slices.Contains(e.did, "leave for good cp-1") {
		t.Errorf("the living node was taken out: %q", e.did)
	}
	if diff := cmp.Diff([]string{"cp-1 unchanged", "w-1 unchanged"}, outcomes(results)); diff != "" {
		t.Error(diff)
	}
}
