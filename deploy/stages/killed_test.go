package stages

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/machine/fake"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
)

// failAtStep makes one step of the hypervisor fail.
func failAtStep(which fake.Step) func(context.Context, fake.Step) error {
	return func(_ context.Context, s fake.Step) error {
		if s == which {
			return provider.ErrFull
		}
		return nil
	}
}

// killer ends a run as kill -9 does: from one step on, nothing that the run does has an effect, neither on the
// hypervisor nor on disk.
type killer struct {
	w     *world
	at    int  // the step that is not done
	early bool // files written since the step before are lost, too: the kill came before them
	dead  chan struct{}
	ended chan struct{}

	mu    sync.Mutex
	n     int
	dying bool
	saved state.Dir // a copy of the state on disk at the kill
}

type runKey struct{}

func (k *killer) step(ctx context.Context, _ fake.Step) error {
	if ctx.Value(runKey{}) != k {
		return nil // another run's
	}
	k.mu.Lock()
	if k.dying {
		k.mu.Unlock()
		<-k.ended
		return errors.New("killed")
	}
	k.n++
	if k.n < k.at {
		if k.early && k.n == k.at-1 {
			k.saveDir()
		}
		k.mu.Unlock()
		return nil
	}
	k.dying = true
	if !k.early || k.saved == "" {
		k.saveDir()
	}
	k.mu.Unlock()
	close(k.dead)
	<-k.ended
	return errors.New("killed")
}

func (k *killer) saveDir() {
	for {
		dir := filepath.Join(k.w.t.TempDir(), ".nixbench", "demo")
		err := os.CopyFS(dir, os.DirFS(string(k.w.dir)))
		if errors.Is(err, os.ErrNotExist) && k.w.t.Context().Err() == nil && durable.Exists(string(k.w.dir)) {
			continue // a file was renamed during the copy, which is incomplete
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			k.w.t.Error(err)
		}
		k.saved = state.Dir(dir)
		return
	}
}

// kill runs f and kills it at a step. It reports whether f came that far.
func (w *world) kill(at int, early bool, f func(context.Context)) bool {
	k := &killer{w: w, at: at, early: early, dead: make(chan struct{}), ended: make(chan struct{})}
	w.h.OnStep(k.step)
	over := make(chan struct{})
	go func() {
		f(context.WithValue(w.t.Context(), runKey{}, k))
		close(over)
	}()
	select {
	case <-over:
		return false
	case <-k.dead:
		k.mu.Lock()
		w.dir = k.saved
		k.mu.Unlock()
		w.t.Cleanup(func() { close(k.ended); <-over })
		return true
	}
}

// After a run is killed at any step, the next one converges, and destroy removes everything.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()
	quick := func(o *Options) { o.Parallel, o.BootTimeout = 2, 5*time.Second }
	for _, early := range []bool{false, true} {
		for at := 1; ; at++ {
			w := newWorld(t, map[string]int{"w": 2})
			came := w.kill(at, early, func(ctx context.Context) { _, _ = w.applyIn(ctx, quick) })
			if !came {
				t.Logf("%d steps were cut off, early: %t", at-1, early)
				break
			}
			results, err := w.apply(quick)
			if err != nil {
				t.Fatalf("killed at step %d, early %t: the next apply: %v", at, early, err)
			}
			// A node may have been switched before its sibling's machine was made.
			for _, r := range results {
				if r.Outcome != state.Switched && r.Outcome != state.Unchanged {
					t.Errorf("killed at step %d, early %t: %+v", at, early, r)
				}
			}
			if len(results) != 2 {
				t.Errorf("killed at step %d, early %t: %q", at, early, outcomes(results))
			}
			steps := len(w.h.Log())
			if _, err := w.apply(quick); err != nil {
				t.Fatal(err)
			}
			if did := w.effects(steps); len(did) > 0 {
				t.Errorf("killed at step %d, early %t: the second apply did %q", at, early, did)
			}
			if err := w.destroy(nil); err != nil {
				t.Fatalf("killed at step %d, early %t: destroy: %v", at, early, err)
			}
			w.checkEmpty()
		}
	}
}

// The same for removals: an apply that scales down, a destroy, and a destroy right after a killed apply.
func TestKilledWhileRemoving(t *testing.T) {
	t.Parallel()
	for _, early := range []bool{false, true} {
		for name, f := range map[string]func(w *world, ctx context.Context){
			"apply": func(w *world, ctx context.Context) {
				w.scale(map[string]int{"w": 1})
				_, _ = w.applyIn(ctx)
			},
			"destroy": func(w *world, ctx context.Context) { _ = w.destroyIn(ctx, nil) },
		} {
			for at := 1; ; at++ {
				w := newWorld(t, map[string]int{"w": 2})
				w.must(w.apply())
				if !w.kill(at, early, func(ctx context.Context) { f(w, ctx) }) {
					t.Logf("%s: %d steps were cut off, early: %t", name, at-1, early)
					break
				}
				if name == "apply" {
					if _, err := w.apply(); err != nil {
						t.Fatalf("killed at step %d, early %t: %v", at, early, err)
					}
					if n := countObjects(w, "domain "); n != 1 {
						t.Errorf("killed at step %d: %d machines", at, n)
					}
				}
				if err := w.destroy(nil); err != nil {
					t.Fatalf("%s killed at step %d, early %t: %v", name, at, early, err)
				}
				w.checkEmpty()
			}
		}
	}
	for at := 1; ; at++ {
		w := newWorld(t, map[string]int{"w": 2})
		if !w.kill(at, false, func(ctx context.Context) { _, _ = w.applyIn(ctx) }) {
			return
		}
		if err := w.destroy(nil); err != nil {
			t.Fatalf("apply killed at step %d, then destroy: %v", at, err)
		}
		w.checkEmpty()
	}
}
