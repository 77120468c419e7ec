package stages

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/machine/fake"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// twoHypervisors returns a world of three machines, of which w-2 is on rack2.
func twoHypervisors(t *testing.T) *world {
	w := newWorld(t, map[string]int{"w": 3})
	other := fake.New()
	other.OnStart(w.machineStarted)
	w.extraHypervisors, w.unreachable = map[string]*fake.Hypervisor{"rack2": other}, map[string]bool{}
	w.hive.Cluster.Hypervisors["rack2"] = nixeval.Hypervisor{URI: "fake://rack2/", Pool: "nixbench"}
	w.hive.Units[0].Deployment.Keys = map[string]nixeval.Key{}
	w.must(w.apply())
	if at := places(w.state()); at != "w-1 default, w-2 rack2, w-3 default" {
		t.Fatal(at)
	}
	return w
}

func places(s *state.State) string {
	var all []string
	for _, node := range slices.Sorted(maps.Keys(s.Machines)) {
		all = append(all, node+" "+s.Machines[node].Hypervisor)
	}
	return strings.Join(all, ", ")
}

func (w *world) abandon(hypervisor string) (destroyPlan *machine.DestroyPlan, results []state.NodeResult, err error) {
	results, err = w.session(w.t.Context(), "destroy", func(d *Deployer) error {
		destroyPlan = d.Machines.PlanAbandon(d.Store.State(), hypervisor)
		defer destroyPlan.Close()
		_, err := d.Destroy(w.t.Context(), destroyPlan, Options{})
		return err
	})
	return destroyPlan, results, err
}

func TestAbandonHypervisor(t *testing.T) {
	t.Parallel()
	w := twoHypervisors(t)
	before, left := w.state(), w.extraHypervisors["rack2"].Objects()
	boot := w.h.Boot("demo-w-1")
	w.unreachable["rack2"] = true

	// apply and destroy fail, and the hint names the way out.
	for what, err := range map[string]error{"apply": second(w.apply()), "destroy": w.destroy(nil)} {
		var helpful interface{ Hint() string }
		if !errors.Is(err, provider.ErrUnreachable) || !errors.As(err, &helpful) || !strings.Contains(helpful.Hint(), "see that it is on; if it is permanently lost") || !strings.Contains(helpful.Hint(), "--forget-hypervisor rack2") {
			t.Errorf("%s: %v", what, err)
		}
	}
	delete(w.hive.Cluster.Hypervisors, "rack2")
	if _, err := w.apply(); !errors.Is(err, provider.ErrUnreachable) {
		t.Errorf("the hypervisor was dropped without --forget-hypervisor: %v", err)
	}

	destroyPlan, results, err := w.abandon("rack2")
	if err != nil {
		t.Fatal(err)
	}
	wantTexts(t, outcomes(results), "w-2 forgotten")
	want := []string{
		"w-2 on rack2: its address and its host key are removed from the record",
		"left on rack2, at fake://rack2/: the machines, their disks and keys, the images and the network of the cluster with the id " + before.Cluster.ID,
	}
	wantTexts(t, destroyPlan.Lines(), want...)
	now := w.state()
	if len(now.Machines) != 2 || len(now.Cluster.Hypervisors) != 1 || now.Cluster.ID != before.Cluster.ID || len(now.Intents) > 0 || now.Nodes["w-2"].LastConfirmed != nil {
		t.Errorf("%+v", now)
	}
	if facts := readFile(t, w.dir.Facts()); strings.Contains(facts, "10.0.0.3") {
		t.Errorf("the facts still have it: %s", facts)
	}

	// The node gets a new machine on the other hypervisor, with a new host key; other machines do not change.
	wantTexts(t, outcomes(w.must(w.apply())), "w-1 unchanged", "w-2 switched", "w-3 unchanged")
	if at := places(w.state()); at != "w-1 default, w-2 default, w-3 default" || w.h.Boot("demo-w-1") != boot || len(w.questions) > 0 {
		t.Errorf("%s; asked %q", at, w.questions)
	}
	if w.state().Machines["w-2"].HostKey == before.Machines["w-2"].HostKey {
		t.Error("it has the host key that is on a lost disk")
	}

	// The hypervisor comes back into the hive with its old machine: apply refuses to choose, and destroy removes both machines.
	w.unreachable["rack2"] = false
	if things := w.extraHypervisors["rack2"].Objects(); !slices.Equal(things, left) {
		t.Errorf("the abandoned hypervisor was changed: %q", things)
	}
	w.hive.Cluster.Hypervisors["rack2"] = nixeval.Hypervisor{URI: "fake://rack2/", Pool: "nixbench"}
	if _, err := w.apply(); err == nil || !strings.Contains(err.Error(), "w-2: it has two machines, on hypervisor default and on hypervisor rack2") || w.h.Boot("demo-w-2") == 0 {
		t.Errorf("the error is %v", err)
	}
}

func second[A any](_ A, err error) error { return err }

// If all hypervisors are abandoned, the state is empty and a new cluster can be created.
func TestAbandonAllHypervisors(t *testing.T) {
	t.Parallel()
	w := twoHypervisors(t)
	w.unreachable["rack2"], w.unreachable["default"] = true, true
	for _, name := range []string{"rack2", "default"} {
		if _, _, err := w.abandon(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.destroy(nil); err != nil {
		t.Fatal(err)
	}
	if s := w.state(); s.Cluster != nil || len(s.Machines) > 0 {
		t.Errorf("%+v", s)
	}
	if _, err := os.Stat(w.dir.Facts()); !os.IsNotExist(err) {
		t.Errorf("there are still facts: %v", err)
	}
	w.unreachable["rack2"], w.unreachable["default"] = false, false
	w.h, w.extraHypervisors["rack2"] = fake.New(), fake.New()
	w.h.OnStart(w.machineStarted)
	w.extraHypervisors["rack2"].OnStart(w.machineStarted)
	w.machines = map[string]*simulatedNode{}
	w.must(w.apply())
}
