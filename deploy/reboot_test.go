package deploy

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/state"
)

// The run after a killed reboot waits for the node, but not without limit.
func TestKilledReboot(t *testing.T) {
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
		_, err := d.Reboot(ctx, inspect.Nodes(ctx, d.Fleet, w.hive.Nodes, 0, nil), RebootOptions{Timeout: 10 * time.Second})
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
