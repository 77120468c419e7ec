package stages

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// newWorldWithChecks returns a world of two nodes, deployed twice, with a health check that passes while healthy is true.
func newWorldWithChecks(t *testing.T) (w *world, healthy *atomic.Bool, requests *atomic.Int64) {
	t.Helper()
	healthy, requests = &atomic.Bool{}, &atomic.Int64{}
	healthy.Store(true)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		if !healthy.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(s.Close)
	w = newWorld(t, map[string]int{"w": 2})
	w.hive.Units[0].Deployment.HealthChecks = map[string]nixeval.HealthCheck{"web": {HTTP: &s.URL, From: nixeval.FromHere, Timeout: 1, Interval: 1}}
	w.must(w.apply())
	w.revision++
	w.must(w.apply())
	requests.Store(0)
	return w, healthy, requests
}

// A failed health check rolls the node back, and the nodes of later waves stay.
func TestHealthChecksRollBack(t *testing.T) {
	t.Parallel()
	w, healthy, _ := newWorldWithChecks(t)
	old := w.machines["w-1"].current
	healthy.Store(false)
	w.revision++
	results, err := w.apply(func(o *Options) { o.MaxUnavailable, _ = selection.ParseShare("1") })
	wantTexts(t, outcomes(results), "w-1 rolled-back", "w-2 skipped")
	if err == nil || failure.KindOf(err) != failure.Activation || !strings.Contains(err.Error(), "w-1: switch to ") ||
		!strings.Contains(err.Error(), ": health check web: http://127.0.0.1:") || !strings.Contains(err.Error(), ": status 503 Service Unavailable (") || !strings.HasSuffix(err.Error(), "; the node rolled back to "+old) {
		t.Error(err)
	}
	if w.machines["w-1"].current != old || len(w.state().Intents) > 0 {
		t.Errorf("it runs %s; intents %+v", w.machines["w-1"].current, w.state().Intents)
	}
	results, err = w.apply(func(o *Options) { o.WithoutHealthChecks, o.CheckTimeout = true, time.Minute })
	if wantTexts(t, outcomes(results), "w-1 switched", "w-2 switched"); err != nil {
		t.Error(err)
	}
}

// The checks of unchanged nodes are run at the end of apply.
func TestHealthChecksAtTheEnd(t *testing.T) {
	t.Parallel()
	w, healthy, requests := newWorldWithChecks(t)
	withCheck := func(o *Options) { o.CheckTimeout = time.Minute }
	w.must(w.apply(withCheck))
	if requests.Load() != 2 {
		t.Errorf("%d requests, want one for each node", requests.Load())
	}
	w.must(w.apply()) // without the check at the end
	if requests.Load() != 2 {
		t.Error("the checks were run for unchanged nodes")
	}
	healthy.Store(false)
	results, err := w.apply(withCheck)
	wantTexts(t, outcomes(results), "w-1 unchanged", "w-2 unchanged")
	if err == nil || failure.KindOf(err) != failure.Check || !strings.Contains(err.Error(), "health checks of 2 nodes pass: not after ") ||
		!strings.Contains(err.Error(), "w-1: health check web: ") || !strings.Contains(err.Error(), "; w-2: health check web: ") {
		t.Error(err)
	}
}

// Where no rollback is armed, after a reboot and after a rollback, a failed health check is an error of the node, and the node stays.
func TestHealthChecksWithoutRollback(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		run  func(*world, func(*Options)) ([]state.NodeResult, error)
		want string
	}{
		"unarmed": {func(w *world, o func(*Options)) ([]state.NodeResult, error) {
			w.revision++
			return w.apply(o, func(o *Options) { o.Confirm = 0 })
		}, "it was not rolled back"},
		"boot default": {func(w *world, o func(*Options)) ([]state.NodeResult, error) {
			for _, m := range w.machines {
				m.generation--
			}
			return w.apply(o)
		}, "it was not rolled back"},
		"apply boot --reboot": {func(w *world, o func(*Options)) ([]state.NodeResult, error) {
			w.revision++
			return w.apply(o, func(o *Options) { o.Goal, o.RebootNodes, o.RebootTimeout = node.Boot, true, time.Minute })
		}, "it has rebooted"},
		"reboot": {func(w *world, o func(*Options)) ([]state.NodeResult, error) {
			var options Options
			o(&options)
			return w.reboot(options)
		}, "it has rebooted"},
		"rollback": {func(w *world, o func(*Options)) ([]state.NodeResult, error) { return w.rollback(w.t.Context(), o) }, "it keeps the earlier system"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, healthy, requests := newWorldWithChecks(t)
			healthy.Store(false)
			results, err := test.run(w, func(*Options) {})
			wantTexts(t, outcomes(results), "w-1 failed", "w-2 failed")
			if err == nil || failure.KindOf(err) != failure.Activation || !strings.Contains(err.Error(), "w-1: health check web: ") || !strings.Contains(err.Error(), "; "+test.want) {
				t.Error(err)
			}
			for _, m := range w.machines {
				if last := m.effects[len(m.effects)-1]; !strings.HasSuffix(last, m.current) {
					t.Errorf("it runs %s after %s", m.current, last)
				}
			}
			before := requests.Load()
			if results, err = test.run(w, func(o *Options) { o.WithoutHealthChecks = true }); err != nil || requests.Load() != before {
				t.Errorf("without health checks: %+v, %v", results, err)
			}
		})
	}
}

// The health checks do not run against the old system of a node that has the new system only as its boot default.
func TestHealthChecksNeedReboot(t *testing.T) {
	t.Parallel()
	w, healthy, requests := newWorldWithChecks(t)
	healthy.Store(false)
	w.machines["w-1"].needsReboot, w.machines["w-2"].needsReboot = true, true
	w.revision++
	if results, err := w.apply(func(o *Options) { o.CheckTimeout = time.Minute }); err != nil || requests.Load() != 0 {
		t.Errorf("%+v, %v, %d requests", results, err, requests.Load())
	}
	healthy.Store(true)
	w.revision++
	w.must(w.apply(func(o *Options) { o.CheckTimeout, o.RebootNodes, o.RebootTimeout = time.Minute, true, time.Minute }))
	if w.machines["w-1"].boot != 1 || requests.Load() != 4 { // after the reboot, and at the end
		t.Errorf("%d reboots, %d requests", w.machines["w-1"].boot, requests.Load())
	}
}

// When the next apply finishes a killed run that had no health checks, it runs the health checks of the node before the next wave.
func TestHealthChecksOfKilledRun(t *testing.T) {
	t.Parallel()
	w, healthy, _ := newWorldWithChecks(t)
	m := w.machines["w-1"]
	m.run = []string{"run=killed", "goal=switch", "path=" + m.current, "from=/nix/store/generic", "to=" + m.current, "armed=0", "phase=settling", "alive=yes", "seen=60"}
	healthy.Store(false)
	results, err := w.apply(func(o *Options) { o.MaxUnavailable, _ = selection.ParseShare("1") })
	wantTexts(t, outcomes(results)[:1], "w-1 failed")
	if err == nil || !strings.Contains(err.Error(), "w-1: health check web: ") {
		t.Error(err)
	}
}
