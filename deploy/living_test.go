package deploy

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/state"
)

// lives is a world in which so many control planes and workers run together.
func lives(t *testing.T, cps, ws int) (*world, *sulky) {
	w := newWorld(t, map[string]int{"cp": cps, "w": ws})
	e := &sulky{}
	w.together(e)
	w.must(w.apply())
	e.members = map[string]engine.Status{}
	for _, n := range w.hive.Nodes {
		e.members[n.Name] = engine.Status{Ready: true, OneByOne: n.Role == "cp"}
	}
	e.did = nil
	return w, e
}

// turns are the nodes in the order in which something was done to them; who is in it twice was
// disturbed by others.
func (w *world) turns() string {
	var out []string
	for _, e := range w.events {
		if e.Node != "" && e.Phase != event.Connect && e.Kind != event.Message {
			out = append(out, e.Node)
		}
	}
	return strings.Join(slices.Compact(out), " ")
}

// While the engine says nothing, its members are changed in its order all the same.
func TestSilentEngine(t *testing.T) {
	w, e := lives(t, 3, 2)
	e.refuse = "members"
	w.revision++
	results, err := w.apply()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"cp-1 switched", "cp-2 switched", "cp-3 switched", "w-1 switched", "w-2 switched"}, outcomes(results)); diff != "" {
		t.Error(diff)
	}
	if got := w.turns(); got != "cp-1 cp-2 cp-3 w-1 w-2" {
		t.Errorf("turns: %s", got)
	}
	if slices.ContainsFunc(e.did, func(s string) bool { return strings.HasPrefix(s, "leave") }) {
		t.Errorf("what cannot be asked cannot be drained: %q", e.did)
	}

	// When it speaks again, who is left is drained.
	w, e = lives(t, 2, 0)
	e.refuse = "members"
	w.revision++
	e.when = func(what string) {
		if what == "invite cp-1" {
			e.refuse = ""
		}
	}
	w.must(w.apply())
	if diff := cmp.Diff([]string{"invite cp-1", "leave cp-2", "return cp-2", "invite cp-2"}, e.did); diff != "" {
		t.Error(diff)
	}
}

// Without draining, what a run that was killed has drained is given its work again.
func TestWithoutDrain(t *testing.T) {
	w, e := lives(t, 1, 2)
	e.members["w-2"] = engine.Status{Ready: true, Left: true}
	w.revision++
	w.must(w.apply(func(o *Options) { o.WithoutDrain = true }))
	if diff := cmp.Diff([]string{"return w-2"}, e.did); diff != "" {
		t.Error(diff)
	}
}

func (w *world) reboot(o RebootOptions) ([]state.NodeResult, error) {
	return w.session(w.t.Context(), "reboot", func(d *Deployer) error {
		o.Timeout = 10 * time.Second
		_, err := d.Reboot(w.t.Context(), Look(w.t.Context(), d.Fleet, w.hive.Nodes, 0, nil), o)
		return err
	})
}

// A reboot goes through what lives as a change does.
func TestRebootAmid(t *testing.T) {
	w, e := lives(t, 2, 1)
	w.must(w.reboot(RebootOptions{}))
	if got := w.turns(); got != "cp-1 cp-2 w-1" {
		t.Errorf("turns: %s", got)
	}
	if diff := cmp.Diff([]string{"leave cp-1", "return cp-1", "leave cp-2", "return cp-2", "leave w-1", "return w-1"}, e.did); diff != "" {
		t.Error(diff)
	}
	e.did = nil
	w.must(w.reboot(RebootOptions{WithoutDrain: true}))
	if got := w.turns(); got != "cp-1 cp-2 w-1" || len(e.did) > 0 {
		t.Errorf("turns: %s; %q", got, e.did)
	}
	// Who keeps its work does not reboot, nor do those after it.
	e.refuse = "leave"
	boots := w.machines["cp-1"].boot
	results, err := w.reboot(RebootOptions{})
	if err == nil || w.machines["cp-1"].boot != boots {
		t.Errorf("%v, %d boots", err, w.machines["cp-1"].boot)
	}
	if diff := cmp.Diff([]string{"cp-1 failed", "cp-2 skipped", "w-1 skipped"}, outcomes(results)); diff != "" {
		t.Error(diff)
	}
}

func TestRollbackAmid(t *testing.T) {
	w, e := lives(t, 2, 1)
	w.revision++
	w.must(w.apply())
	e.did = nil
	w.must(w.session(t.Context(), "rollback", func(d *Deployer) error {
		steps, err := PlanRollback(Look(t.Context(), d.Fleet, w.hive.Nodes, 0, nil), d.Store.State().Nodes, RollbackTo{})
		if err != nil {
			return err
		}
		_, err = d.Rollback(t.Context(), steps, RollbackOptions{Confirm: time.Minute})
		return err
	}))
	if got := w.turns(); got != "cp-1 cp-2 w-1" {
		t.Errorf("turns: %s", got)
	}
	if diff := cmp.Diff([]string{"leave cp-1", "return cp-1", "leave cp-2", "return cp-2", "leave w-1", "return w-1"}, e.did); diff != "" {
		t.Error(diff)
	}
}

// Nor does a run that takes itself back switch all control planes at once.
func TestTakeBackAmid(t *testing.T) {
	w, e := lives(t, 2, 1)
	w.revision++
	e.when = func(what string) {
		if what == "leave w-1" {
			e.refuse = "leave" // and from now on nobody lets go
		}
	}
	results, err := w.apply(func(o *Options) { o.RollbackAll, o.WithoutKeys = true, true })
	if err == nil {
		t.Fatal("w-1 let go of its work")
	}
	if diff := cmp.Diff([]string{"cp-1 rolled-back", "cp-2 rolled-back", "w-1 failed"}, outcomes(results)); diff != "" {
		t.Errorf("%s\n%v", diff, err)
	}
	if got := w.turns(); got != "cp-1 cp-2 w-1 cp-1 cp-2" {
		t.Errorf("turns: %s", got)
	}
}
