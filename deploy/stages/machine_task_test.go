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

// A machine whose system shuts down during its first boot is started once more. If it shuts down again, the run does not wait until the time limit.
func TestMachineThatShutsDown(t *testing.T) {
	t.Parallel()
	for name, boots := range map[string]int{"once": 1, "twice": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]int{"w": 1})
			w.boot["w-1"] = time.Second
			starts := 0
			w.h.OnStep(func(_ context.Context, s fake.Step) error {
				if s.Name == "start" {
					starts++
					if starts <= boots {
						w.boot["w-1"] = time.Hour
						time.AfterFunc(300*time.Millisecond, func() { w.h.PowerOff("demo-w-1") })
					} else {
						w.boot["w-1"] = 0
					}
				}
				return nil
			})
			began := time.Now()
			results, err := w.apply(func(o *Options) { o.BootTimeout = 30 * time.Second })
			if time.Since(began) > 20*time.Second {
				t.Errorf("the run has waited for %v", time.Since(began))
			}
			if starts != 2 {
				t.Errorf("the machine was started %d times", starts)
			}
			if boots == 1 {
				if diff := cmp.Diff([]string{"w-1 switched"}, outcomes(results)); diff != "" || err != nil {
					t.Error(diff, err)
				}
				return
			}
			var boot *machine.BootError
			if !errors.As(err, &boot) || boot.Within >= 20*time.Second || !strings.Contains(err.Error(), "it is off: its system has shut down twice") {
				t.Errorf("the error is %v", err)
			}
		})
	}
}
