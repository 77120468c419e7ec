package deploy

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/provision/fakeprovider"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// twoHypervisors is a world where every second machine of three is on rack2.
func twoHypervisors(t *testing.T) *world {
	w := newWorld(t, map[string]int{"w": 3})
	other := fakeprovider.New()
	other.OnStart(w.started)
	w.more, w.gone = map[string]*fakeprovider.Hypervisor{"rack2": other}, map[string]bool{}
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
	for _, node := range sortedKeys(s.Machines) {
		all = append(all, node+" "+s.Machines[node].Hypervisor)
	}
	return strings.Join(all, ", ")
}

func (w *world) forget(hypervisor string) (doom *Doom, results []state.NodeResult, err error) {
	results, err = w.session(w.t.Context(), "destroy", func(d *Deployer) error {
		doom = d.Machines.Abandon(d.Store.State(), hypervisor)
		defer doom.Close()
		_, err := d.Destroy(w.t.Context(), doom, DestroyOptions{})
		return err
	})
	return doom, results, err
}

func TestForgetHypervisor(t *testing.T) {
	w := twoHypervisors(t)
	before, left := w.state(), w.more["rack2"].Things()
	boot := w.h.Boot("demo-w-1")
	w.gone["rack2"] = true

	// It blocks everything, with a way out.
	for what, err := range map[string]error{"apply": second(w.apply()), "destroy": w.destroy(nil)} {
		var helpful interface{ Hint() string }
		if !errors.Is(err, provision.ErrGone) || !errors.As(err, &helpful) || !strings.Contains(helpful.Hint(), "see that it is on; if it is gone for good") || !strings.Contains(helpful.Hint(), "--forget-hypervisor rack2") {
			t.Errorf("%s: %v", what, err)
		}
	}
	delete(w.hive.Cluster.Hypervisors, "rack2")
	if _, err := w.apply(); !errors.Is(err, provision.ErrGone) {
		t.Errorf("it was forgotten in silence: %v", err)
	}

	doom, results, err := w.forget("rack2")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"w-2 forgotten"}, outcomes(results)); diff != "" {
		t.Error(diff)
	}
	want := []string{
		"w-2 on rack2: its address 10.0.0.3 and its host key are given up",
		"left on rack2, at fake://rack2/: demo-w-2, with their disks in pool nixbench, and network net",
	}
	if diff := cmp.Diff(want, doom.Lines()); diff != "" {
		t.Error(diff)
	}
	now := w.state()
	if len(now.Machines) != 2 || len(now.Cluster.Hypervisors) != 1 || now.Cluster.ID != before.Cluster.ID || len(now.Intents) > 0 || now.Nodes["w-2"].LastConfirmed != nil {
		t.Errorf("%+v", now)
	}
	if facts := readFile(t, w.dir.Facts()); strings.Contains(facts, "10.0.0.3") {
		t.Errorf("the facts still have it: %s", facts)
	}

	// The next one is made elsewhere, and is somebody else; nobody else is disturbed.
	results, err = w.apply()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"w-1 unchanged", "w-2 switched", "w-3 unchanged"}, outcomes(results)); diff != "" {
		t.Error(diff)
	}
	if at := places(w.state()); at != "w-1 default, w-2 default, w-3 default" || w.h.Boot("demo-w-1") != boot || len(w.asked) > 0 {
		t.Errorf("%s; asked %q", at, w.asked)
	}
	if w.state().Machines["w-2"].HostKey == before.Machines["w-2"].HostKey {
		t.Error("it has the host key that is on a lost disk")
	}

	// It comes back, and is named again: what was left there goes, after a question.
	w.gone["rack2"] = false
	if things := w.more["rack2"].Things(); !slices.Equal(things, left) {
		t.Errorf("something was done there: %q", things)
	}
	w.hive.Cluster.Hypervisors["rack2"] = nixeval.Hypervisor{URI: "fake://rack2/", Pool: "nixbench"}
	w.must(w.apply())
	if diff := cmp.Diff([]string{"remove w-2 on rack2: a second machine of that node"}, w.asked); diff != "" {
		t.Error(diff)
	}
	if things := w.more["rack2"].Things(); len(things) > 0 || w.h.Boot("demo-w-2") == 0 {
		t.Errorf("left: %q", things)
	}
}

func second[A any](_ A, err error) error { return err }

// With all hypervisors gone nothing is left, and the next cluster begins.
func TestForgetAllHypervisors(t *testing.T) {
	w := twoHypervisors(t)
	w.gone["rack2"], w.gone["default"] = true, true
	for _, name := range []string{"rack2", "default"} {
		if _, _, err := w.forget(name); err != nil {
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
	w.gone["rack2"], w.gone["default"] = false, false
	w.h, w.more["rack2"] = fakeprovider.New(), fakeprovider.New()
	w.h.OnStart(w.started)
	w.more["rack2"].OnStart(w.started)
	w.machines = map[string]*simulated{}
	w.must(w.apply())
}

// Killed in between, it is asked for once more.
func TestForgetIsKilled(t *testing.T) {
	w := twoHypervisors(t)
	w.gone["rack2"] = true
	file := filepath.Join(string(w.dir), "secrets", "hosts", "w-2")
	// A key that cannot be removed: a folder with something in it has its name.
	key := readFile(t, file)
	if err := errors.Join(os.Remove(file), os.MkdirAll(file+"/x", 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, results, err := w.forget("rack2"); err == nil || !slices.Equal(outcomes(results), []string{"w-2 failed"}) {
		t.Errorf("%q, %v", outcomes(results), err)
	}
	if s := w.state(); len(s.Machines) != 3 || len(s.Cluster.Hypervisors) != 2 {
		t.Errorf("%+v", s)
	}
	if err := errors.Join(os.RemoveAll(file), os.WriteFile(file, []byte(key), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, results, err := w.forget("rack2"); err != nil || !slices.Equal(outcomes(results), []string{"w-2 forgotten"}) {
		t.Errorf("%q, %v", outcomes(results), err)
	}
}
