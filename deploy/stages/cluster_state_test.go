package stages

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/enginetest"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/machine/fake"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// newRunningCluster returns a world with a deployed cluster of cps control planes and ws workers.
func newRunningCluster(t *testing.T, cps, ws int) (*world, *enginetest.Fake) {
	w := newWorld(t, map[string]int{"cp": cps, "w": ws})
	e := &enginetest.Fake{}
	w.useEngine(e)
	w.must(w.apply())
	e.Registered = map[string]engine.Status{}
	for _, n := range w.hive.Nodes {
		e.Registered[n.Name] = engine.Status{Ready: true, OneByOne: n.Role == "cp"}
	}
	e.Calls = nil
	return w, e
}

// changeOrder returns the nodes in the order of their changes, without the copies, which precede them. A node that is in it twice changed at the same
// time as another one.
func (w *world) changeOrder() string {
	var out []string
	for _, e := range w.events {
		if e.Node != "" && e.Phase != event.Connect && e.Phase != event.Copy && e.Kind != event.Message {
			out = append(out, e.Node)
		}
	}
	return strings.Join(slices.Compact(out), " ")
}

// The nodes of a new cluster are admitted before their switches are committed, because the creation of the cluster takes
// longer than the services are watched. A node whose admission fails then is admitted again after the commit.
func TestNewClusterIsAdmittedEarly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"cp": 1, "w": 1})
	e := &enginetest.Fake{}
	w.useEngine(e)
	var got []string
	e.OnCall = func(what string) { // only one call at a time
		e.Refuse = ""
		if node, ok := strings.CutPrefix(what, "admit "); ok {
			when := " before"
			if w.state().Nodes[node].LastConfirmed != nil {
				when = " after"
			}
			if got = append(got, what+when); node == "w-1" && when == " before" {
				e.Refuse = "admit"
			}
		}
	}
	w.must(w.apply())
	slices.Sort(got)
	wantTexts(t, got, "admit cp-1 before", "admit w-1 after", "admit w-1 before")
}

// If the hive of a command has another engine than the nodes run, such as without the --set of the scheduler, the check says so and does not wait.
func TestCheckOfAnotherEngine(t *testing.T) {
	t.Parallel()
	w, _ := newRunningCluster(t, 1, 1)
	for i := range w.hive.Units {
		w.hive.Units[i].Deployment.Engine = nil
	}
	began := time.Now()
	_, err := w.session(t.Context(), "check", func(d *Deployer) error {
		_, err := check.Await(t.Context(), inspect.NodeConditions(d.Fleet, w.hive.Nodes, 0, nil, nil), nil)
		return err
	})
	if want := "cp-1 runs sulky, and has no engine in the hive; is a --set scheduler=… missing?; w-1 runs sulky"; err == nil || !strings.Contains(err.Error(), want) || time.Since(began) > 20*time.Second {
		t.Errorf("%v after %v, want %q", err, time.Since(began), want)
	}
}

// A stopped unit of an engine that does not answer is started before the first node changes, so that members are drained. Units of other nodes are only named.
func TestStartStoppedController(t *testing.T) {
	t.Parallel()
	for name, selected := range map[string]bool{"selected": true, "not selected": false} {
		w, e := newRunningCluster(t, 1, 1)
		e.Stopped = map[string]string{"cp-1": "d.service"}
		e.Refuse = "members"
		e.OnCall = func(what string) {
			if what == "start cp-1 d.service" {
				e.Refuse = ""
			}
		}
		w.revision++
		nodes := w.hive.Nodes
		if !selected {
			nodes = nodes[1:]
		}
		_, err := w.session(t.Context(), "apply", func(d *Deployer) error {
			return d.Apply(t.Context(), w.hive, nodes, Options{Options: plan.Options{Options: node.Options{Goal: node.Switch, Confirm: time.Minute}}, BootTimeout: 10 * time.Second, Partial: !selected})
		})
		calls := strings.Join(e.MemberCalls(), "; ")
		if err != nil || strings.HasPrefix(calls, "start cp-1 d.service; drain cp-1;") != selected || strings.Contains(calls, "start ") != selected {
			t.Errorf("%s: %v, %s", name, err, calls)
		}
		if said := fmt.Sprint(w.events); !strings.Contains(said, "cp-1: d.service is stopped") {
			t.Errorf("%s: the stopped unit is not named", name)
		}
	}
}

// Members are changed in the usual order while the engine does not answer.
func TestUnreachableEngine(t *testing.T) {
	t.Parallel()
	w, e := newRunningCluster(t, 3, 2)
	e.Refuse = "members"
	w.revision++
	two, _ := selection.ParseShare("2")
	wantTexts(t, outcomes(w.must(w.apply(func(o *Options) { o.MaxUnavailable = two }))), "cp-1 switched", "cp-2 switched", "cp-3 switched", "w-1 switched", "w-2 switched")
	if got := w.changeOrder(); !strings.HasPrefix(got, "cp-1 cp-2 cp-3 w-") {
		t.Errorf("turns: %s", got)
	}
	if slices.ContainsFunc(e.Calls, func(s string) bool { return strings.HasPrefix(s, "drain") }) {
		t.Errorf("the engine does not answer and was asked to drain: %q", e.Calls)
	}

	// When the engine answers again, the remaining members are drained.
	w, e = newRunningCluster(t, 2, 0)
	e.Refuse = "members"
	w.revision++
	e.OnCall = func(what string) {
		if what == "admit cp-1" {
			e.Refuse = ""
		}
	}
	w.must(w.apply())
	wantTexts(t, e.MemberCalls(), "admit cp-1", "drain cp-2", "wait for cp-2", "uncordon cp-2", "admit cp-2")
}

// Without draining, a member that a killed run had drained is uncordoned.
func TestWithoutDrain(t *testing.T) {
	t.Parallel()
	w, e := newRunningCluster(t, 1, 2)
	e.Registered["w-2"] = engine.Status{Ready: true, Drained: true}
	w.revision++
	w.must(w.apply(func(o *Options) { o.WithoutDrain = true }))
	wantTexts(t, e.MemberCalls(), "wait for w-2", "uncordon w-2")
}

func (w *world) reboot(o Options) ([]state.NodeResult, error) {
	return w.session(w.t.Context(), "reboot", func(d *Deployer) error {
		o.RebootTimeout = 10 * time.Second
		_, err := d.ExecuteSteps(w.t.Context(), PlanReboot(inspect.Nodes(w.t.Context(), d.Fleet, w.hive.Nodes, 0, nil), false), o)
		return err
	})
}

// A reboot of a running cluster is a rolling update, as apply is.
func TestRebootRunningCluster(t *testing.T) {
	t.Parallel()
	w, e := newRunningCluster(t, 2, 1)
	w.must(w.reboot(Options{}))
	if got := w.changeOrder(); got != "cp-1 cp-2 w-1" {
		t.Errorf("turns: %s", got)
	}
	wantTexts(t, e.MemberCalls(), "drain cp-1", "wait for cp-1", "uncordon cp-1", "drain cp-2", "wait for cp-2", "uncordon cp-2", "drain w-1", "wait for w-1", "uncordon w-1")
	e.Calls = nil
	w.must(w.reboot(Options{Options: plan.Options{WithoutDrain: true}}))
	if got := w.changeOrder(); got != "cp-1 cp-2 w-1" || len(e.Calls) > 0 {
		t.Errorf("turns: %s; %q", got, e.Calls)
	}
	// A member that cannot be drained does not reboot, nor do the nodes after it.
	e.Refuse = "drain"
	boots := w.machines["cp-1"].boot
	results, err := w.reboot(Options{})
	if err == nil || w.machines["cp-1"].boot != boots {
		t.Errorf("%v, %d boots", err, w.machines["cp-1"].boot)
	}
	wantTexts(t, outcomes(results), "cp-1 failed", "cp-2 skipped", "w-1 skipped")
}

// Members that were deployed from another computer are drained, because the nodes report their deployment.
func TestDeployedFromElsewhere(t *testing.T) {
	t.Parallel()
	clearNodes := func(w *world) {
		w.must(w.session(t.Context(), "forget", func(d *Deployer) error {
			return d.Store.Update(func(s *state.State) error { clear(s.Nodes); return nil })
		}))
	}
	for name, act := range map[string]func(*world) ([]state.NodeResult, error){
		"apply":  func(w *world) ([]state.NodeResult, error) { w.revision++; return w.apply() },
		"reboot": func(w *world) ([]state.NodeResult, error) { return w.reboot(Options{}) },
	} {
		w, e := newRunningCluster(t, 2, 1)
		clearNodes(w)
		e.Calls = nil
		w.must(act(w))
		if got := w.changeOrder(); got != "cp-1 cp-2 w-1" {
			t.Errorf("%s: turns: %s", name, got)
		}
		if !slices.Contains(e.Calls, "drain cp-2") {
			t.Errorf("%s: %q", name, e.Calls)
		}
	}
}

// After an interrupt, nodes that were not rebooted have results, too.
func TestRebootInterrupted(t *testing.T) {
	t.Parallel()
	for name, early := range map[string]bool{"in a turn": false, "before the first": true} {
		w, e := newRunningCluster(t, 0, 2)
		ctx, cancel := context.WithCancel(t.Context())
		e.OnCall = func(string) { cancel() }
		two, _ := selection.ParseShare("2")
		var results []state.NodeResult
		recorded, err := w.session(t.Context(), "reboot", func(d *Deployer) (err error) {
			inspected := inspect.Nodes(ctx, d.Fleet, w.hive.Nodes, 0, nil)
			if early {
				cancel()
			}
			results, err = d.ExecuteSteps(ctx, PlanReboot(inspected, false), Options{Options: plan.Options{MaxUnavailable: two}, Parallel: 1, RebootTimeout: 10 * time.Second})
			return err
		})
		first := "w-1 failed"
		if early {
			first = "w-1 skipped"
		}
		if diff := cmp.Diff([]string{first, "w-2 skipped"}, outcomes(results)); err == nil || diff != "" || !cmp.Equal(outcomes(results), outcomes(recorded)) {
			t.Errorf("%s: %v\n%s%q", name, err, diff, outcomes(recorded))
		}
		if last := w.events[len(w.events)-1]; last.Kind != event.PhaseEnd || !last.Failed {
			t.Errorf("%s: %+v", name, last)
		}
	}
}

func TestRollbackRunningCluster(t *testing.T) {
	t.Parallel()
	w, e := newRunningCluster(t, 2, 1)
	w.revision++
	w.must(w.apply())
	e.Calls = nil
	w.must(w.session(t.Context(), "rollback", func(d *Deployer) error {
		steps, err := w.planRollback(d)
		if err != nil {
			return err
		}
		_, err = d.ExecuteSteps(t.Context(), steps, Options{Options: plan.Options{Options: node.Options{Confirm: time.Minute}}})
		return err
	}))
	if got := w.changeOrder(); got != "cp-1 cp-2 w-1" {
		t.Errorf("turns: %s", got)
	}
	wantTexts(t, e.MemberCalls(), "drain cp-1", "wait for cp-1", "uncordon cp-1", "drain cp-2", "wait for cp-2", "uncordon cp-2", "drain w-1", "wait for w-1", "uncordon w-1")
}

// A run that rolls back all its nodes restores control planes one after the other.
func TestRestoreRunningCluster(t *testing.T) {
	t.Parallel()
	w, e := newRunningCluster(t, 2, 1)
	w.revision++
	e.OnCall = func(what string) {
		if what == "drain w-1" {
			e.Refuse = "drain" // from now on every drain fails
		}
	}
	results, err := w.apply(func(o *Options) { o.RollbackAll, o.WithoutKeys = true, true })
	if err == nil {
		t.Fatal("w-1 was drained")
	}
	if diff := cmp.Diff([]string{"cp-1 rolled-back", "cp-2 rolled-back", "w-1 failed"}, outcomes(results)); diff != "" {
		t.Errorf("%s\n%v", diff, err)
	}
	if got := w.changeOrder(); got != "cp-1 cp-2 w-1 cp-1 cp-2" {
		t.Errorf("turns: %s", got)
	}
}

// A node that cannot be restored does not stop the others. But after a control plane that cannot be restored, no other one is.
func TestRestoreContinuesAfterFailures(t *testing.T) {
	t.Parallel()
	w, e := newRunningCluster(t, 2, 2)
	w.revision++
	back := false
	e.OnCall = func(what string) {
		e.Refuse = ""
		switch {
		case what == "drain w-2":
			e.Refuse, back = "drain", true
		case what == "drain cp-1" && back:
			w.machines["cp-1"].server.Close()
		}
	}
	results, err := w.apply(func(o *Options) { o.RollbackAll, o.WithoutKeys = true, true })
	if err == nil || !strings.Contains(err.Error(), "cp-1: cannot be rolled back") || !strings.Contains(err.Error(), "cp-2: not rolled back, because cp-1 could not be rolled back") {
		t.Error(err)
	}
	wantTexts(t, outcomes(results), "cp-1 switched", "cp-2 switched", "w-1 rolled-back", "w-2 failed")
}

// resize changes the memory of the machines of a role.
func (w *world) resize(role, memory string) {
	r := w.hive.Roles[role]
	r.Memory = memory
	w.hive.Roles[role] = r
}

// booted returns how often each machine has started.
func (w *world) booted() map[string]int {
	out := map[string]int{}
	for _, n := range w.hive.Nodes {
		out[n.Name] = w.h.Boot("demo-" + n.Name)
	}
	return out
}

// Machines of members restart one after the other, each after its drain.
func TestResizeMembers(t *testing.T) {
	t.Parallel()
	for _, goal := range []node.Goal{node.Switch, node.Boot} {
		w, e := newRunningCluster(t, 2, 2)
		w.resize("cp", "2G")
		w.resize("w", "3G")
		before := w.booted()
		e.OnCall = func(what string) {
			if node, ok := strings.CutPrefix(what, "drain "); ok && w.h.Boot("demo-"+node) != before[node] {
				t.Errorf("%s was restarted without a drain", node)
			}
			if node, ok := strings.CutPrefix(what, "uncordon "); ok && w.h.Boot("demo-"+node) == before[node] {
				t.Errorf("%s was uncordoned before it was restarted", node)
			}
		}
		results, err := w.apply(func(o *Options) { o.Goal = goal })
		if err != nil {
			t.Fatal(err)
		}
		if got := w.changeOrder(); got != "cp-1 cp-2 w-1 w-2" {
			t.Errorf("turns: %s", got)
		}
		wantTexts(t, e.MemberCalls(), "drain cp-1", "wait for cp-1", "uncordon cp-1", "drain cp-2", "wait for cp-2", "uncordon cp-2", "drain w-1", "wait for w-1", "uncordon w-1", "drain w-2", "wait for w-2", "uncordon w-2")
		wantTexts(t, outcomes(results), "cp-1 unchanged", "cp-2 unchanged", "w-1 unchanged", "w-2 unchanged")
		if len(w.questions) != 4 {
			t.Errorf("asked %q", w.questions)
		}
		after := w.booted()
		w.must(w.apply())
		if diff := cmp.Diff(after, w.booted()); diff != "" {
			t.Errorf("second apply: %s", diff)
		}
	}
}

// A member that cannot be drained keeps its machine, and the members after it keep theirs.
func TestResizeStopsIfDrainIsRefused(t *testing.T) {
	t.Parallel()
	w, e := newRunningCluster(t, 2, 0)
	w.resize("cp", "2G")
	before := w.booted()
	e.Refuse = "drain"
	if _, err := w.apply(); err == nil {
		t.Error("the refused drain was not reported")
	}
	if diff := cmp.Diff(before, w.booted()); diff != "" {
		t.Error(diff)
	}
}

func (w *world) newImage() {
	w.t.Helper()
	if err := os.WriteFile(w.image, []byte("another disk"), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func recreate(o *Options) { o.Recreate = true }

// A member is removed before its machine is recreated, and the next one follows when it has joined again.
func TestRecreateMembers(t *testing.T) {
	t.Parallel()
	w, e := newRunningCluster(t, 2, 1)
	w.newImage()
	results, err := w.apply(recreate)
	if err != nil {
		t.Fatal(err)
	}
	if len(w.questions) != 3 || !strings.HasSuffix(w.questions[0], "; it has a replica of the cluster's data, and copies the data from the other members afterwards") || strings.Contains(w.questions[2], "data") {
		t.Errorf("asked %q", w.questions)
	}
	if got := w.changeOrder(); got != "cp-1 cp-2 w-1" {
		t.Errorf("turns: %s", got)
	}
	var want []string
	for _, node := range []string{"cp-1", "cp-2", "w-1"} {
		want = append(want, "drain for removal "+node, "remove "+node, "admit "+node, "wait for "+node, "uncordon "+node)
	}
	wantTexts(t, e.MemberCalls(), want...)
	wantTexts(t, outcomes(results), "cp-1 switched", "cp-2 switched", "w-1 switched")
	if n := countObjects(w, "image "); n != 1 {
		t.Errorf("%d images are left", n)
	}
}

func TestRecreateRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refuse  string
		goal    node.Goal
		wantErr string
	}{
		"it cannot be removed":  {"remove", node.Switch, "cp-1: the engine refuses"},
		"the engine is silent":  {"members", node.Switch, "no node can be removed from the cluster: the engine does not answer"},
		"it would not join":     {"", node.Boot, "cp-1: apply boot cannot recreate its machine"},
		"it does not get ready": {"wait for", node.Switch, "cp-1: the engine refuses"},
		"it is not admitted":    {"admit", node.Switch, "cp-1: the engine refuses"},
	} {
		w, e := newRunningCluster(t, 2, 0)
		w.newImage()
		before := w.booted()
		e.Refuse = c.refuse
		_, err := w.apply(recreate, func(o *Options) { o.Goal = c.goal })
		if err == nil || !strings.Contains(err.Error(), c.wantErr) {
			t.Errorf("%s: %v, want %q", name, err, c.wantErr)
		}
		begun := c.refuse == "wait for" || c.refuse == "admit"
		if after := w.booted(); (after["cp-1"] != before["cp-1"]) != begun || after["cp-2"] != before["cp-2"] {
			t.Errorf("%s: %v, and before %v", name, after, before)
		}
	}
	// The question for the only control plane says that the data are lost.
	w, _ := newRunningCluster(t, 1, 0)
	w.newImage()
	w.decline = true
	if _, err := w.apply(recreate); err == nil || len(w.questions) != 1 || !strings.HasSuffix(w.questions[0], "; it is the only member with the cluster's data, which are lost") {
		t.Errorf("asked %q: %v", w.questions, err)
	}
}

// A machine that does not answer is recreated as well.
func TestRecreateUnreachableMember(t *testing.T) {
	t.Parallel()
	w, e := newRunningCluster(t, 1, 1)
	role := w.hive.Roles["w"]
	other := filepath.Join(t.TempDir(), "other.raw") // control planes keep their image
	if err := os.WriteFile(other, []byte("another disk"), 0o644); err != nil {
		t.Fatal(err)
	}
	role.Image = &other
	w.hive.Roles["w"] = role
	w.unresponsive["w-1"] = true
	w.h.OnStep(func(_ context.Context, s fake.Step) error {
		if s.Op == "ensure" && s.Node == "w-1" {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.unresponsive["w-1"] = false
		}
		return nil
	})
	wantTexts(t, outcomes(w.must(w.apply(recreate))), "cp-1 unchanged", "w-1 switched")
	wantTexts(t, e.MemberCalls(), "drain for removal w-1", "remove w-1", "admit w-1", "wait for w-1", "uncordon w-1")
}

// The next run finishes what a run that was interrupted while it recreated a member has left.
func TestRecreateInterrupted(t *testing.T) {
	t.Parallel()
	for _, failingStep := range []int{1, 3, 5, 7, 8} {
		w, e := newRunningCluster(t, 2, 0)
		w.newImage()
		n := 0
		w.h.OnStep(func(_ context.Context, s fake.Step) error {
			if s.Node == "cp-1" {
				if n++; n >= failingStep {
					return errors.New("cut off")
				}
			}
			return nil
		})
		e.OnCall = func(what string) {
			if node, ok := strings.CutPrefix(what, "remove "); ok {
				delete(e.Registered, node)
			}
			if node, ok := strings.CutPrefix(what, "admit "); ok {
				e.Registered[node] = engine.Status{Ready: true, OneByOne: true}
			}
		}
		if _, err := w.apply(recreate); err == nil || w.h.Boot("demo-cp-2") == 0 || e.Registered["cp-2"] == (engine.Status{}) {
			t.Fatalf("cut before step %d: %v", failingStep, err)
		}
		w.h.OnStep(nil)
		_, isMember := e.Registered["cp-1"]
		e.Calls = nil
		if _, err := w.apply(recreate); err != nil {
			t.Fatalf("cut before step %d: %v", failingStep, err)
		}
		back, next := slices.Index(e.Calls, "wait for cp-1"), slices.Index(e.Calls, "drain for removal cp-2")
		if !isMember && (back < 0 || next >= 0 && next < back) {
			t.Errorf("cut before step %d: cp-2 was removed before cp-1 had joined again: %q", failingStep, e.Calls)
		}
		if len(e.Registered) != 2 {
			t.Errorf("cut before step %d: members %v", failingStep, e.Registered)
		}
		for _, node := range []string{"cp-1", "cp-2"} {
			if s := w.state(); s.Nodes[node].LastConfirmed == nil || len(s.Intents) > 0 || w.h.Boot("demo-"+node) == 0 {
				t.Errorf("cut before step %d: %+v", failingStep, s)
			}
		}
	}
}

// If one drain would delete something, no drain begins and nothing changes: in every command that drains, and
// for every position of the node in the order.
func TestDrainsAreCheckedFirst(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(*world, engine.DrainOptions) ([]state.NodeResult, error){
		"apply": func(w *world, o engine.DrainOptions) ([]state.NodeResult, error) {
			w.revision++
			return w.apply(func(a *Options) { a.Drain = o })
		},
		"another size": func(w *world, o engine.DrainOptions) ([]state.NodeResult, error) {
			w.resize("w", "3G")
			return w.apply(func(a *Options) { a.Drain = o })
		},
		"another image": func(w *world, o engine.DrainOptions) ([]state.NodeResult, error) {
			w.newImage()
			return w.apply(recreate, func(a *Options) { a.Drain = o })
		},
		"fewer nodes": func(w *world, o engine.DrainOptions) ([]state.NodeResult, error) {
			e := w.engines["sulky"](engine.Cluster{}).(*enginetest.Fake)
			w.scale(map[string]int{"cp": 1, "w": 1})
			w.useEngine(e)
			w.revision++
			return w.apply(func(a *Options) { a.Drain = o })
		},
		"reboot": func(w *world, o engine.DrainOptions) ([]state.NodeResult, error) {
			return w.reboot(Options{Drain: o})
		},
		"destroy": func(w *world, o engine.DrainOptions) ([]state.NodeResult, error) {
			return w.session(t.Context(), "destroy", func(d *Deployer) error {
				destroyPlan, err := d.Machines.PlanDestroy(t.Context(), d.Store.State(), func(all []nixeval.Node) ([]nixeval.Node, error) {
					return slices.DeleteFunc(all, func(n nixeval.Node) bool { return n.Role == "cp" }), nil
				})
				if err != nil {
					return err
				}
				defer destroyPlan.Close()
				_, err = d.Destroy(t.Context(), destroyPlan, Options{Drain: o})
				return err
			})
		},
	} {
		w, e := newRunningCluster(t, 1, 2)
		e.Blocked = map[string]string{"w-2": "shop/debug"}
		starts := func() string {
			var out []string
			for _, node := range []string{"cp-1", "w-1", "w-2"} {
				out = append(out, fmt.Sprint(w.h.Boot("demo-"+node), w.machines[node].boot, w.machines[node].current))
			}
			return strings.Join(out, "; ")
		}
		before := starts()
		_, err := act(w, engine.DrainOptions{})
		var blocked *engine.BlockedError
		if !errors.As(err, &blocked) || err.Error() != "w-2: drain: shop/debug is bare" {
			t.Errorf("%s: %v", name, err)
		}
		if calls := e.MemberCalls(); len(calls) > 0 || starts() != before {
			t.Errorf("%s: changed although the drain was refused: %q; %s, and before %s", name, calls, starts(), before)
		}
		e.Calls = nil
		w.must(act(w, engine.DrainOptions{Allowed: []string{enginetest.Deletable.Name}}))
		if !slices.ContainsFunc(e.Calls, func(s string) bool { return s == "drain w-2" || s == "drain for removal w-2" }) || len(e.Options.Allowed) == 0 {
			t.Errorf("%s, allowed: %q, %+v", name, e.Calls, e.Options)
		}
		if !slices.ContainsFunc(w.events, func(e event.Event) bool { return e.Text == "w-2: the drain deletes shop/debug, which is bare" }) {
			t.Errorf("%s: what the drain deletes is not reported", name)
		}
	}
}

// A member whose programs do not work is drained for a short time, and the change goes on.
func TestDrainOfBrokenMember(t *testing.T) {
	t.Parallel()
	w, e := newRunningCluster(t, 1, 1)
	e.Broken = map[string]string{"w-1": "its kubelet is dead"}
	w.revision++
	results, err := w.apply()
	if err != nil || !slices.Equal(e.Options.Broken, []string{"w-1"}) {
		t.Errorf("%v, %+v", err, e.Options)
	}
	wantTexts(t, outcomes(results), "cp-1 switched", "w-1 switched")
	if !slices.ContainsFunc(w.events, func(e event.Event) bool {
		return e.Level == "warning" && e.Node == "w-1" && strings.HasPrefix(e.Text, "w-1: its kubelet is dead; its drain has a short time limit")
	}) {
		t.Error("the short drain is not reported")
	}
	// The check reports a program that still does not run at the end.
	w.revision++
	if _, err := w.apply(func(o *Options) { o.CheckTimeout = time.Second }); err == nil || !strings.Contains(err.Error(), "w-1: its kubelet is dead") {
		t.Error(err)
	}
}

// Units that failed during the run are reported at the end, also on nodes that did not change. Those that had
// failed before are only named in a warning.
func TestFailedUnitsAtEnd(t *testing.T) {
	t.Parallel()
	w, e := newRunningCluster(t, 1, 1)
	set := func(units string) {
		w.machines["w-1"].mu.Lock()
		defer w.machines["w-1"].mu.Unlock()
		w.machines["w-1"].failed = units
	}
	set("backup.service")
	warned := func() bool {
		return slices.ContainsFunc(w.events, func(e event.Event) bool {
			return e.Level == "warning" && e.Node == "w-1" && e.Text == "w-1: failed before this run and has not recovered: backup.service"
		})
	}
	w.must(w.apply(func(o *Options) { o.CheckTimeout = 5 * time.Second }))
	if !warned() {
		t.Error("no warning names the unit that had failed before")
	}
	e.OnCall = func(what string) { // after the nodes were inspected
		if what == "look " {
			set("backup.service web.service")
		}
	}
	_, err := w.apply(func(o *Options) { o.CheckTimeout = time.Second })
	if err == nil || !strings.Contains(err.Error(), "w-1: failed: web.service") {
		t.Error(err)
	}
	e.OnCall = nil
	set("")
	w.must(w.apply(func(o *Options) { o.CheckTimeout = 5 * time.Second }))
	w.events = nil
	e.OnCall = func(what string) {
		if what == "look " {
			set("backup.service")
		}
	}
	if _, err := w.apply(func(o *Options) { o.CheckTimeout = time.Second }); err == nil || !strings.Contains(err.Error(), "w-1: failed: backup.service") {
		t.Error(err)
	}
	if warned() {
		t.Error("a unit that has failed since is said to have failed before")
	}
	e.OnCall = nil
	set("")
	w.must(w.apply(func(o *Options) { o.CheckTimeout = 5 * time.Second }))
}
