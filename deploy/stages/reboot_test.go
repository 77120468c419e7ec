package stages

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// The run after a killed reboot waits for the node, but not without limit.
func TestKilledReboot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"w": 1})
	w.must(w.apply())
	deaf := func(is bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.unresponsive = map[string]bool{"w-1": is}
	}
	m := w.machines["w-1"]
	go func() { // the node cannot be reached once it reboots
		for t.Context().Err() == nil {
			m.mu.Lock()
			boot := m.boot
			m.mu.Unlock()
			if boot == 1 {
				deaf(true)
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := w.session(ctx, "reboot", func(d *Deployer) error {
		_, err := d.ExecuteSteps(ctx, PlanReboot(inspect.Nodes(ctx, d.Fleet, w.hive.Nodes, 0, nil), false), Options{RebootTimeout: 10 * time.Second})
		return err
	}); err == nil {
		t.Fatal("the reboot was not interrupted")
	}
	if got := w.state().Intents; len(got) != 1 || got[0].Step != state.RebootNode || got[0].Path != "1" {
		t.Fatalf("intents: %+v", got)
	}

	time.AfterFunc(time.Second, func() { deaf(false) })
	w.must(w.apply())
	if got := w.state().Intents; len(got) != 0 {
		t.Errorf("intents: %+v", got)
	}
	if !slices.ContainsFunc(w.events, func(e event.Event) bool { return e.Kind == event.Message && e.Node == "w-1" }) {
		t.Error("what is waited for is not said")
	}

	// The run does not wait for an old intent, or for a node that never received the reboot command.
	for _, since := range []time.Time{time.Now().Add(-time.Hour), time.Now().Add(-time.Minute)} {
		_, err := w.session(t.Context(), "reboot", func(d *Deployer) error {
			return d.Store.Begin(state.Intent{Run: d.Record.ID(), Node: "w-1", Step: state.RebootNode, Path: "2", Since: since})
		})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		w.must(w.apply())
		if took := time.Since(begin); took > 5*time.Second || len(w.state().Intents) > 0 {
			t.Errorf("it took %v; intents %v", took, w.state().Intents)
		}
	}
}

// With --reboot, apply makes the system the boot default, drains and reboots one member after the other, and
// records the system as confirmed. Nodes that have booted the system are not rebooted.
func TestApplyAndReboot(t *testing.T) {
	t.Parallel()
	reboots := func(o *Options) {
		o.Goal, o.RebootNodes, o.RebootTimeout = node.Boot, true, 10*time.Second
	}
	w, e := newRunningCluster(t, 2, 1)
	w.revision++
	wantTexts(t, outcomes(w.must(w.apply(reboots))), "cp-1 rebooted", "cp-2 rebooted", "w-1 rebooted")
	wantTexts(t, e.MemberCalls(), "drain cp-1", "wait for cp-1", "uncordon cp-1", "drain cp-2", "wait for cp-2", "uncordon cp-2", "drain w-1", "wait for w-1", "uncordon w-1")
	for name, m := range w.machines {
		want := m.generations[m.generation-1]
		if got := m.effects[len(m.effects)-2:]; !slices.Equal(got, []string{"boot " + want, "reboot " + want}) {
			t.Errorf("%s: %q", name, got)
		}
		if confirmed := w.state().Nodes[name].LastConfirmed; confirmed == nil || confirmed.Path != want || confirmed.Generation != m.generation {
			t.Errorf("%s: the last confirmed system is %+v, not %s", name, confirmed, want)
		}
	}

	e.Calls = nil
	wantTexts(t, outcomes(w.must(w.apply(reboots))), "cp-1 unchanged", "cp-2 unchanged", "w-1 unchanged")
	wantTexts(t, e.MemberCalls())

	// A run that was killed before the reboot is completed by the next one.
	w.revision++
	w.must(w.apply(func(o *Options) { o.Goal = node.Boot }))
	if results, err := w.apply(reboots); err != nil || outcomes(results)[0] != "cp-1 rebooted" || w.machines["cp-1"].boot != 2 {
		t.Errorf("after a run that did not reboot: %v, %q", err, outcomes(results))
	}
}

// A node that cannot be deployed is not rebooted, and does not prevent the reboot of other nodes. A drain that
// is refused prevents reboots.
func TestApplyAndRebootFails(t *testing.T) {
	t.Parallel()
	reboots := func(o *Options) {
		o.Goal, o.RebootNodes, o.RebootTimeout = node.Boot, true, 10*time.Second
	}
	w := newWorld(t, map[string]int{"w": 2})
	w.must(w.apply())
	w.revision++
	w.machines["w-1"].busy = true
	results, err := w.apply(reboots)
	if diff := cmp.Diff([]string{"w-1 failed", "w-2 rebooted"}, outcomes(results)); diff != "" || err == nil {
		t.Error(err, diff)
	}
	if w.machines["w-1"].boot != 0 {
		t.Error("a node was rebooted while another run switches it")
	}

	w, e := newRunningCluster(t, 1, 1)
	w.revision++
	e.Refuse = "drain"
	results, err = w.apply(reboots)
	if diff := cmp.Diff([]string{"cp-1 failed", "w-1 skipped"}, outcomes(results)); diff != "" || err == nil || w.machines["cp-1"].boot != 0 {
		t.Error(err, diff)
	}
}

// A reboot and a start upload the keys in /run again, and no others. A key that cannot be uploaded is an error of the node.
func TestKeysAfterBoot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"w": 1})
	w.must(w.apply())
	key := nixeval.Key{Name: "k", Text: nixeval.NewSecret("x"), User: "root", Group: "root", Permissions: "0600", UploadAt: "pre-activation"}
	volatile, kept := key, key
	volatile.DestDir, volatile.Path, kept.DestDir, kept.Path = "/run/keys", "/run/keys/k", "/var/keys", "/var/keys/k"
	w.hive.Units[0].Deployment.Keys = map[string]nixeval.Key{"volatile": volatile, "kept": kept}
	for command, act := range map[string]func() ([]state.NodeResult, error){
		"reboot": func() ([]state.NodeResult, error) {
			return w.session(t.Context(), "reboot", func(d *Deployer) error {
				_, err := d.ExecuteSteps(t.Context(), PlanReboot(inspect.Nodes(t.Context(), d.Fleet, w.hive.Nodes, 0, nil), false), Options{RebootTimeout: 10 * time.Second})
				return err
			})
		},
		"start": func() ([]state.NodeResult, error) {
			w.must(w.power(t.Context(), (*machine.Power).Stop, machine.PowerOptions{Timeout: 5 * time.Second}))
			return w.power(t.Context(), (*machine.Power).Start, machine.PowerOptions{Timeout: 5 * time.Second})
		},
	} {
		results, err := act() // the simulated node accepts no keys
		var failed *fleet.NodeError
		if !errors.As(err, &failed) || failed.Step != event.Keys {
			t.Errorf("%s: %v", command, err)
		}
		wantTexts(t, outcomes(results), "w-1 failed")
		i := slices.IndexFunc(w.events, func(e event.Event) bool { return e.Kind == event.NodeStart && e.Phase == event.Keys })
		if i < 0 || w.events[i].Text != "1 key" {
			t.Errorf("%s: the upload of one key is not in the events, %v", command, err)
		}
	}
}
