package stages

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine/fake"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/nixeval"
)

// warnings returns the warnings of the last run.
func (w *world) warnings() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, e := range w.events {
		if e.Kind == event.Message && e.Level == "warning" {
			out = append(out, e.Text)
		}
	}
	return out
}

// preview returns what plan shows for each node, and its error.
func (w *world) preview() ([]string, error) {
	var out []string
	_, err := w.session(w.t.Context(), "plan", func(d *Deployer) error {
		all, err := d.Preview(w.t.Context(), w.hive, w.hive.Nodes, Options{Options: plan.Options{WithoutKeys: true}})
		for _, p := range all.Nodes {
			out = append(out, p.Node+" "+p.Action+", "+string(p.Machine.Action)+", "+p.Machine.Why)
		}
		return err
	})
	return out, err
}

// A network with a foreign machine on it is not removed, and that is an error. The cluster's id stays, so that
// the next apply or destroy can continue.
func TestDestroyKeepsNetworkInUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"w": 2})
	w.must(w.apply())
	id := w.state().Cluster.ID
	w.h.AddGuest("guest", "net")
	inUse := func(err error) {
		t.Helper()
		var e *provider.Error
		if !errors.Is(err, provider.ErrInUse) || !errors.As(err, &e) || !strings.Contains(err.Error(), "remove network net: it is in use: used by machine guest") {
			t.Errorf("destroy: %v", err)
		} else if !strings.Contains(e.Fix, "nixbench destroy again") {
			t.Errorf("hint: %s", e.Fix)
		}
		s := w.state()
		if s.Cluster == nil || s.Cluster.ID != id || len(s.Machines) > 0 || len(s.Intents) > 0 {
			t.Errorf("state: %+v", s)
		}
		wantTexts(t, slices.DeleteFunc(w.h.Objects(), func(s string) bool { return strings.HasPrefix(s, "reservation") }), "domain guest", "network net")
	}
	inUse(w.destroy(nil))
	inUse(w.destroy(nil))
	wantTexts(t, outcomes(w.must(w.apply())), "w-1 switched", "w-2 switched")
	inUse(w.destroy(nil))
	w.h.RemoveDomain("guest")
	if err := w.destroy(nil); err != nil {
		t.Error(err)
	}
	w.checkEmpty()
}

// plan and apply refuse a machine that cannot be created before they create anything.
func TestPreflight(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil func(*world)
		want  string
	}{
		"image": {func(w *world) {
			nowhere := "/nowhere.raw"
			r := w.hive.Roles["w"]
			r.Image = &nowhere
			w.hive.Roles["w"] = r
		}, "role w: image /nowhere.raw: no such file or directory"},
		"xml": {func(w *world) {
			r := w.hive.Roles["w"]
			r.XML = "this is no <xml"
			w.hive.Roles["w"] = r
		}, "role w: the option xml is not a <domain>"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, map[string]int{"w": 2})
			test.spoil(w)
			things := w.h.Objects()
			_, planned := w.preview()
			_, applied := w.apply()
			for command, err := range map[string]error{"plan": planned, "apply": applied} {
				if err == nil || strings.Count(err.Error(), test.want) != 1 {
					t.Errorf("%s: %v", command, err)
				}
				var hinted interface{ Hint() string }
				if name != "xml" && (!errors.As(err, &hinted) || hinted.Hint() == "") {
					t.Errorf("%s: the error has no hint", command)
				}
			}
			if s := w.state(); s.Cluster != nil || len(s.Machines) > 0 || !slices.Equal(w.h.Objects(), things) {
				t.Errorf("something was created: %q, %+v", w.h.Objects(), s)
			}
		})
	}
}

// A copy of a machine is neither used as the machine nor removed.
func TestCopiedMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"w": 1})
	w.must(w.apply())
	w.h.CopyMachine("demo-w-1", "zz-copy")
	wantTexts(t, outcomes(w.must(w.apply())), "w-1 unchanged")
	_, err := w.session(t.Context(), "destroy", func(d *Deployer) error {
		destroyPlan, err := d.Machines.PlanDestroy(t.Context(), d.Store.State(), nil)
		if err != nil {
			return err
		}
		defer destroyPlan.Close()
		wantTexts(t, destroyPlan.Lines(), "w-1 on default")
		_, err = d.Destroy(t.Context(), destroyPlan, Options{})
		return err
	})
	if !errors.Is(err, provider.ErrInUse) || !slices.Contains(w.h.Objects(), "domain zz-copy") {
		t.Errorf("destroy: %v; there is %q", err, w.h.Objects())
	}
	w.h.RemoveDomain("zz-copy")
	if err := w.destroy(nil); err != nil {
		t.Error(err)
	}
	w.checkEmpty()
}

// A machine whose domain another program removed is defined again around its disk, without a question. If the disk is missing too, apply
// asks before it creates the machine again.
func TestVanishedMachines(t *testing.T) {
	t.Parallel()
	w, _ := newRunningCluster(t, 1, 2)
	before := w.state()
	lose := func(node string, disk bool) {
		w.h.PowerOff("demo-" + node)
		w.h.RemoveDomain("demo-" + node)
		if disk {
			w.h.RemoveDisk(provider.Cluster{Name: "demo", ID: before.Cluster.ID}, node)
		}
	}
	lose("w-1", false)
	since := len(w.h.Log())
	shown, err := w.preview()
	if want := "w-1 not running, start, its domain was removed from hypervisor default, and is defined again around its disk"; err != nil || !slices.Contains(shown, want) {
		t.Errorf("plan shows %q, %v", shown, err)
	}
	w.must(w.apply())
	if len(w.questions) > 0 || slices.ContainsFunc(w.effects(since), func(s string) bool { return strings.HasPrefix(s, "ensure w-1 disk") }) {
		t.Errorf("asked %q, changes %q", w.questions, w.effects(since))
	}
	if now := w.state(); now.Nodes["w-1"].LastConfirmed == nil || !cmp.Equal(now.Machines["w-1"], before.Machines["w-1"], cmpopts.EquateComparable(netip.Addr{})) {
		t.Errorf("recorded: %+v, %+v", now.Machines["w-1"], now.Nodes["w-1"])
	}

	lose("cp-1", true)
	lose("w-2", true)
	w.decline = true
	if _, err := w.apply(); failure.KindOf(err) != failure.Declined || len(w.questions) != 2 ||
		!strings.Contains(w.questions[0], "create cp-1 on default: its disk is no longer on hypervisor default, so it is created again without its data; it is the only member") ||
		!strings.HasSuffix(w.questions[1], "without its data") {
		t.Errorf("asked %q: %v", w.questions, err)
	}
	w.decline = false
	w.must(w.apply())

	// A removal that was interrupted is not questioned again.
	w.questions = nil
	w.h.OnStep(func(_ context.Context, s fake.Step) error {
		if s.Op == "remove" && s.Name == "disk" {
			return errors.New("killed")
		}
		return nil
	})
	if w.destroy(func(all []nixeval.Node) ([]nixeval.Node, error) { return all[2:], nil }) == nil {
		t.Error("the removal was not interrupted")
	}
	w.h.OnStep(nil)
	shown, err = w.preview()
	if want := "w-2 first deployment, finish, a run was interrupted while it created or removed the machine"; err != nil || !slices.Contains(shown, want) {
		t.Errorf("plan shows %q, %v", shown, err)
	}
	w.must(w.apply())
	if len(w.questions) > 0 {
		t.Errorf("asked %q", w.questions)
	}
}
