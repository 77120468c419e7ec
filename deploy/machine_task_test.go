package deploy

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/machines"
	"github.com/nixbench/nixbench/deploy/provision/fakeprovider"
	"github.com/nixbench/nixbench/deploy/state"
)

// The intent to create or start a machine is in the state before the hypervisor is called.
func TestMachineIntent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"w": 1})
	seen := map[string]bool{}
	w.h.OnStep(func(_ context.Context, s fakeprovider.Step) error {
		if s.Node == "" {
			return nil
		}
		seen[s.Name] = true
		intents := w.state().Intents
		if !slices.ContainsFunc(intents, func(i state.Intent) bool { return i.Node == s.Node && i.Step == state.MakeMachine }) {
			t.Errorf("%s: the intents in the state are %+v", s, intents)
		}
		return nil
	})
	w.must(w.apply())
	if !seen["define"] || !seen["start"] {
		t.Fatalf("the machine was made by %v", seen)
	}
	if left := w.state().Intents; len(left) > 0 {
		t.Errorf("the machine is ready, and these intents stay: %+v", left)
	}
	clear(seen)
	w.h.PowerOff("demo-w-1")
	w.must(w.apply())
	if !seen["start"] {
		t.Errorf("the machine was started by %v", seen)
	}
}

// A run that does not wait until its machine is ready leaves the intent. Therefore the next run waits
// for the machine, although the hypervisor reports that it runs.
func TestNextRunWaitsForMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"w": 1})
	w.boot["w-1"] = 1500 * time.Millisecond // longer than the timeout for a running node
	_, err := w.apply(func(o *Options) { o.BootTimeout = 100 * time.Millisecond })
	if boot := (*machines.BootError)(nil); !errors.As(err, &boot) || !boot.Started {
		t.Fatalf("the first run: %v", err)
	}
	if s := w.state(); !s.Unready("w-1") {
		t.Errorf("intents after the first run: %+v", s.Intents)
	}
	results, err := w.apply()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"w-1 switched"}, outcomes(results)); diff != "" {
		t.Error(diff)
	}
}
