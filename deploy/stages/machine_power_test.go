package stages

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
	"github.com/nixbench/nixbench/nixeval"
)

// power stops or starts the machines of all nodes.
func (w *world) power(ctx context.Context, change func(*machine.Power, context.Context, []nixeval.Node, *runs.Recorder, machine.PowerOptions) ([]state.NodeResult, error), o machine.PowerOptions) ([]state.NodeResult, error) {
	return w.session(ctx, "power", func(d *Deployer) error {
		p, err := d.Machines.OpenPower(ctx, d.Fleet, d.Store.State())
		if err != nil {
			return err
		}
		defer p.Close()
		p.AfterBoot = d.UploadVolatileKeys
		_, err = change(p, ctx, w.hive.Nodes, d.Record, o)
		return err
	})
}

// powerSteps returns the order in which machines were shut down and started, since a number of steps.
func (w *world) powerSteps(since int) []string {
	var out []string
	for _, s := range w.h.Log()[since:] {
		if s.Op == "power" {
			out = append(out, s.Name+" "+s.Node)
		}
	}
	return out
}

// newOrderedWorld returns a world with the control plane cp-1 and the workers w-1 and w-2, all deployed.
func newOrderedWorld(t *testing.T) *world {
	w := newWorld(t, map[string]int{"cp": 1, "w": 2})
	w.hive.Units[0].Deployment.Engine = &nixeval.Engine{Kind: "fake", Role: "control-plane", Order: 0}
	w.hive.Units[1].Deployment.Engine = &nixeval.Engine{Kind: "fake", Role: "worker", Order: 1}
	w.must(w.apply())
	return w
}

func TestStopAndStart(t *testing.T) {
	t.Parallel()
	w := newOrderedWorld(t)
	o := machine.PowerOptions{Timeout: 5 * time.Second, Parallel: 1}
	since := len(w.h.Log())
	wantTexts(t, outcomes(w.must(w.power(t.Context(), (*machine.Power).Stop, o))), "cp-1 stopped", "w-1 stopped", "w-2 stopped")
	wantTexts(t, w.powerSteps(since), "shut down w-1", "shut down w-2", "shut down cp-1")
	wantTexts(t, outcomes(w.must(w.power(t.Context(), (*machine.Power).Stop, o))), "cp-1 unchanged", "w-1 unchanged", "w-2 unchanged")

	// The system of cp-1 takes a while to boot; the workers start after it.
	w.boot["cp-1"] = 500 * time.Millisecond
	since = len(w.h.Log())
	wantTexts(t, outcomes(w.must(w.power(t.Context(), (*machine.Power).Start, o))), "cp-1 started", "w-1 started", "w-2 started")
	wantTexts(t, w.powerSteps(since), "start cp-1", "start w-1", "start w-2")
	if len(w.state().Intents) > 0 {
		t.Errorf("intents are left: %+v", w.state().Intents)
	}

	// start waits for machines that run and are still booting, as after an interrupted start.
	w.must(w.power(t.Context(), (*machine.Power).Stop, o))
	began := time.Now()
	ctx, interrupt := context.WithCancel(t.Context())
	time.AfterFunc(200*time.Millisecond, interrupt)
	if _, err := w.power(ctx, (*machine.Power).Start, o); err == nil {
		t.Error("the interrupted start has succeeded")
	}
	wantTexts(t, outcomes(w.must(w.power(t.Context(), (*machine.Power).Start, o))), "cp-1 unchanged", "w-1 started", "w-2 started")
	if took := time.Since(began); took < w.boot["cp-1"] {
		t.Errorf("after %s", took)
	}

	// A stopped machine is started by apply, as before.
	w.must(w.power(t.Context(), (*machine.Power).Stop, o))
	if _, err := w.session(t.Context(), "reboot", func(d *Deployer) error {
		return d.Machines.TurnOn(t.Context(), d.Store.State(), "w-2")
	}); err != nil || w.h.State("demo-w-2") != provider.Running || w.h.State("demo-w-1") != provider.Off {
		t.Errorf("TurnOn: %v", err)
	}
	w.must(w.apply())
	if w.h.State("demo-w-1") != provider.Running {
		t.Error("apply did not start w-1")
	}
}

func TestStopHasDeadline(t *testing.T) {
	t.Parallel()
	w := newOrderedWorld(t)
	w.h.Hang("demo-w-1", nil)
	o := machine.PowerOptions{Timeout: 200 * time.Millisecond}
	results, err := w.power(t.Context(), (*machine.Power).Stop, o)
	if err == nil || !strings.Contains(err.Error(), "w-1, hypervisor default: shut down: its system has not shut down within 200ms") {
		t.Errorf("err = %v", err)
	}
	wantTexts(t, outcomes(results), "cp-1 skipped", "w-1 failed", "w-2 stopped")
	if w.h.State("demo-cp-1") != provider.Running {
		t.Error("cp-1 does not run, although w-1 may need it")
	}
	o.Force = true
	wantTexts(t, outcomes(w.must(w.power(t.Context(), (*machine.Power).Stop, o))), "cp-1 stopped", "w-1 stopped", "w-2 unchanged")
	if !slices.ContainsFunc(w.events, func(e event.Event) bool {
		return e.Level == "warning" && strings.Contains(e.Text, "its system has not shut down within 200ms; its machine is stopped by force")
	}) {
		t.Error("no warning says that w-1 was stopped by force")
	}
}

// If the hypervisor refuses to ask a system to shut down, stop does not wait until the time limit.
func TestStopRefused(t *testing.T) {
	t.Parallel()
	w := newOrderedWorld(t)
	w.h.Hang("demo-w-1", fmt.Errorf("%w: no monitor", provider.ErrRefused))
	o := machine.PowerOptions{Timeout: time.Hour}
	_, err := w.power(t.Context(), (*machine.Power).Stop, o)
	if err == nil || !strings.Contains(err.Error(), "w-1, hypervisor fake: power: shut down: the hypervisor refuses to ask its system: no monitor") || !strings.Contains(failure.Hint(err), "--force") {
		t.Errorf("err = %v, hint %q", err, failure.Hint(err))
	}
	o.Force = true
	w.must(w.power(t.Context(), (*machine.Power).Stop, o))
	if w.h.State("demo-w-1") != provider.Off {
		t.Error("w-1 was not stopped by force")
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	w := newOrderedWorld(t)
	o := machine.PowerOptions{Timeout: 2 * time.Second}
	w.must(w.power(t.Context(), (*machine.Power).Stop, o))
	w.unresponsive["cp-1"] = true
	results, err := w.power(t.Context(), (*machine.Power).Start, machine.PowerOptions{Timeout: 300 * time.Millisecond})
	var boot *machine.BootError
	if !errors.As(err, &boot) || boot.Node != "cp-1" {
		t.Errorf("err = %v", err)
	}
	wantTexts(t, outcomes(results), "cp-1 failed", "w-1 skipped", "w-2 skipped")

	// cp-1 runs now, and is still not ready, so the next start does not start the workers.
	results, err = w.power(t.Context(), (*machine.Power).Start, machine.PowerOptions{Timeout: 300 * time.Millisecond})
	if !errors.As(err, &boot) || boot.Node != "cp-1" || !strings.Contains(err.Error(), "cp-1: its machine runs, but is not ready after 300ms: ") {
		t.Errorf("err = %v", err)
	}
	wantTexts(t, outcomes(results), "cp-1 failed", "w-1 skipped", "w-2 skipped")

	// An interrupt ends the wait.
	ctx, interrupt := context.WithCancelCause(t.Context())
	w.must(w.power(t.Context(), (*machine.Power).Stop, o))
	time.AfterFunc(200*time.Millisecond, func() { interrupt(errors.New("interrupted")) })
	began := time.Now()
	_, err = w.power(ctx, (*machine.Power).Start, machine.PowerOptions{Timeout: time.Minute})
	if err == nil || !strings.Contains(err.Error(), "interrupted") || time.Since(began) > 5*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}

	// A machine that does not exist cannot be started.
	w.h.RemoveDomain("demo-cp-1")
	if _, err = w.power(t.Context(), (*machine.Power).Start, o); err == nil || !strings.Contains(err.Error(), "cp-1: start: its machine does not exist") {
		t.Errorf("err = %v", err)
	}
}
