package stages

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/machine/fake"
	"github.com/nixbench/nixbench/deploy/state"
)

// The intent to create or start a machine is in the state before the hypervisor is called.
func TestMachineIntent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"w": 1})
	seen := map[string]bool{}
	w.h.OnStep(func(_ context.Context, s fake.Step) error {
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
	if boot := (*machine.BootError)(nil); !errors.As(err, &boot) || !boot.Started {
		t.Fatalf("the first run: %v", err)
	}
	if s := w.state(); !s.HasIntent("w-1", state.MakeMachine) {
		t.Errorf("intents after the first run: %+v", s.Intents)
	}
	wantTexts(t, outcomes(w.must(w.apply())), "w-1 switched")
}

// If the system of a machine shuts down during its first boot, the run fails before the time limit. The next run starts the machine.
func TestMachineThatShutsDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"w": 1})
	w.boot["w-1"] = time.Hour
	starts := 0
	w.h.OnStep(func(_ context.Context, s fake.Step) error {
		if s.Name == "start" {
			if starts++; starts == 1 {
				time.AfterFunc(300*time.Millisecond, func() { w.h.PowerOff("demo-w-1") })
			} else {
				w.boot["w-1"] = 0
			}
		}
		return nil
	})
	began := time.Now()
	_, err := w.apply(func(o *Options) { o.BootTimeout = 30 * time.Second })
	var boot *machine.BootError
	if !errors.As(err, &boot) || boot.Within >= 20*time.Second || !strings.Contains(err.Error(), "it is off: its system has shut down during the boot") ||
		!strings.Contains(boot.Hint(), "nixbench console w-1") {
		t.Errorf("the error is %v", err)
	}
	if time.Since(began) > 20*time.Second || starts != 1 {
		t.Errorf("the run has waited for %v, and the machine was started %d times", time.Since(began), starts)
	}
	results, err := w.apply(func(o *Options) { o.BootTimeout = 30 * time.Second })
	if diff := cmp.Diff([]string{"w-1 switched"}, outcomes(results)); diff != "" || err != nil || starts != 2 {
		t.Errorf("the next run: %s %v; the machine was started %d times", diff, err, starts)
	}
}
