package stages

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/state"
)

// newWorldWithBusyNode returns a world of two nodes that were deployed two times, and a third apply.
// That apply cannot switch w-2, so --rollback all restores w-1.
func newWorldWithBusyNode(t *testing.T) (*world, func() ([]state.NodeResult, error)) {
	t.Helper()
	w := newWorld(t, map[string]int{"w": 2})
	w.must(w.apply())
	w.revision++
	w.must(w.apply())
	w.machines["w-2"].busy = true
	return w, func() ([]state.NodeResult, error) {
		w.revision++
		return w.apply(func(o *Options) { o.RollbackAll, o.WithoutKeys = true, true })
	}
}

// Every command that activates a system writes the intent to the state before, and removes it after.
func TestIntentBeforeActivation(t *testing.T) {
	t.Parallel()
	for command, test := range map[string]struct {
		world func() (*world, func() ([]state.NodeResult, error))
		nodes string // in the order in which systems are activated
	}{
		"apply": {func() (*world, func() ([]state.NodeResult, error)) {
			w := newWorldDeployedTwice(t)
			return w, func() ([]state.NodeResult, error) { w.revision++; return w.apply() }
		}, "w-1"},
		"rollback": {func() (*world, func() ([]state.NodeResult, error)) {
			w := newWorldDeployedTwice(t)
			return w, func() ([]state.NodeResult, error) { return w.rollback(t.Context()) }
		}, "w-1"},
		"restore": {func() (*world, func() ([]state.NodeResult, error)) { return newWorldWithBusyNode(t) }, "w-1 w-1 w-2"},
	} {
		w, act := test.world()
		var mu sync.Mutex
		var nodes []string
		w.onEvent = func(e event.Event) {
			if e.Kind != event.NodeStart || e.Phase != event.Activate {
				return
			}
			mu.Lock()
			nodes = append(nodes, e.Node)
			mu.Unlock()
			_, path, _ := strings.Cut(e.Text, " to ")
			intents := w.state().Intents
			if !slices.ContainsFunc(intents, func(i state.Intent) bool {
				return i.Node == e.Node && i.Path == path && i.Step == string(event.Activate)
			}) {
				t.Errorf("%s: %s: %s, and the intents in the state are %+v", command, e.Node, e.Text, intents)
			}
		}
		_, err := act()
		if busy := (*activate.BusyError)(nil); err != nil && !errors.As(err, &busy) {
			t.Errorf("%s: %v", command, err)
		}
		slices.Sort(nodes)
		if got := strings.Join(nodes, " "); got != test.nodes {
			t.Errorf("%s: systems were activated on %s", command, got)
		}
		if left := w.state().Intents; len(left) > 0 {
			t.Errorf("%s: these intents stay: %+v", command, left)
		}
	}
}

// A node that is restored after a failed run runs its previous system, which is the last confirmed
// one in the state.
func TestRestore(t *testing.T) {
	t.Parallel()
	w, apply := newWorldWithBusyNode(t)
	old := w.machines["w-1"].current
	results, err := apply()
	if busy := (*activate.BusyError)(nil); !errors.As(err, &busy) {
		t.Fatal(err)
	}
	wantTexts(t, outcomes(results), "w-1 rolled-back", "w-2 failed")
	if got := w.machines["w-1"].current; got != old {
		t.Errorf("it runs %s, and before %s", got, old)
	}
	if confirmed := w.state().Nodes["w-1"].LastConfirmed; confirmed == nil || confirmed.Path != old {
		t.Errorf("last confirmed: %+v, want %s", confirmed, old)
	}
	var texts []string
	for _, e := range w.events {
		if e.Kind == event.NodeResult && e.Node == "w-1" {
			texts = append(texts, e.Text)
		}
	}
	if last := texts[len(texts)-1]; last != "rolled back to generation 3, because another node failed" {
		t.Errorf("results of w-1: %q", texts)
	}
}

// A node that has rolled back by itself is not restored a second time.
func TestRestoreSkipsRolledBackNodes(t *testing.T) {
	t.Parallel()
	w := newWorldDeployedTwice(t)
	w.machines["w-1"].switchFails = true
	w.machines["w-1"].effects = nil
	w.revision++
	results, err := w.apply(func(o *Options) { o.RollbackAll, o.WithoutKeys = true, true })
	if failed := (*activate.FailedError)(nil); !errors.As(err, &failed) {
		t.Fatal(err)
	}
	wantTexts(t, outcomes(results), "w-1 rolled-back")
	for _, e := range w.events {
		if e.Kind == event.NodeResult && strings.Contains(e.Text, "another node failed") {
			t.Errorf("it was restored again: %s", e.Text)
		}
	}
}

// The state has the right record after each kind of outcome.
func TestRecordOfActivation(t *testing.T) {
	t.Parallel()
	killed := state.Intent{Run: "killed", Node: "w-1", Step: string(event.Activate), Path: "/nix/store/other", Since: time.Unix(0, 0).UTC()}
	interruptAt := func(phase event.Phase) func(*world, context.CancelFunc) {
		return func(w *world, cancel context.CancelFunc) {
			w.onEvent = func(e event.Event) {
				if e.Kind == event.NodeStart && e.Phase == phase {
					cancel()
				}
			}
		}
	}
	for name, test := range map[string]struct {
		goal      node.Goal
		prepare   func(*world, context.CancelFunc)
		outcome   state.Outcome
		text      string
		after     int  // the generation on record
		confirmed bool // the new system is the last confirmed one
		intents   int
	}{
		"switched": {goal: node.Switch, outcome: state.Switched, text: "generation 3 → 4", after: 4, confirmed: true},
		"boot":     {goal: node.Boot, outcome: state.Switched, text: "generation 4 boots next", after: 3},
		"test":     {goal: node.Test, outcome: state.Switched, text: "runs until the next boot", confirmed: true},
		"rolled back": {goal: node.Switch, prepare: func(w *world, _ context.CancelFunc) { w.machines["w-1"].switchFails = true },
			outcome: state.RolledBack, text: "rolled back: units failed (exit 4)", after: 3},
		"unchanged since it was inspected": {goal: node.Switch, prepare: func(w *world, _ context.CancelFunc) {
			m := w.machines["w-1"]
			w.onEvent = func(e event.Event) {
				if e.Kind == event.NodeEnd && e.Phase == event.Copy {
					m.current, m.generation = m.protected, len(m.generations)+1
					m.generations = append(m.generations, m.protected)
				}
			}
		}, outcome: state.Unchanged, text: "unchanged", confirmed: true},
		"interrupted before the node answers": {goal: node.Switch, prepare: interruptAt(event.Activate), outcome: state.Failed, text: "failed: context canceled", intents: 2},
		"interrupted before it is confirmed": {goal: node.Switch, prepare: interruptAt(event.Confirm), outcome: state.Failed,
			text: "failed: rolls back in N unless confirmed", intents: 2},
		"lost": {goal: node.Switch, prepare: func(w *world, _ context.CancelFunc) { w.machines["w-1"].refusesConfirm = true }, outcome: state.Failed,
			text: "failed: rolls back in N unless confirmed", intents: 2},
	} {
		w := newWorldDeployedTwice(t)
		old := w.machines["w-1"].current
		w.must(w.session(t.Context(), "killed", func(d *Deployer) error { return d.Store.Begin(killed) }))
		w.revision++
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if test.prepare != nil {
			test.prepare(w, cancel)
		}
		results, err := w.applyIn(ctx, func(o *Options) { o.Goal = test.goal })
		if confirmed := test.outcome == state.Switched || test.outcome == state.Unchanged; confirmed != (err == nil) || len(results) != 1 {
			t.Errorf("%s: %+v, %v", name, results, err)
			continue
		}
		last := w.events[slices.IndexFunc(w.events, func(e event.Event) bool { return e.Kind == event.NodeResult })]
		text := regexp.MustCompile(` in [1-9][0-9ms]* unless`).ReplaceAllString(last.Text, " in N unless")
		if r := results[0]; r.Outcome != test.outcome || r.After != test.after || text != test.text {
			t.Errorf("%s: outcome %s, generation %d: %q", name, r.Outcome, r.After, text)
		}
		s := w.state()
		if confirmed := s.Nodes["w-1"].LastConfirmed; confirmed == nil || (confirmed.Path != old) != test.confirmed {
			t.Errorf("%s: last confirmed: %+v, and before %s", name, confirmed, old)
		}
		if len(s.Intents) != test.intents {
			t.Errorf("%s: the intents in the state are %+v", name, s.Intents)
		}
	}
}

// Restoring a node restores its keys first, and restores also its boot default.
func TestRestoreWithAnotherBootDefault(t *testing.T) {
	t.Parallel()
	for goal, want := range map[node.Goal][]string{
		node.Switch: {"switch 2", "keys put back", "switch 1", "keys put back", "boot 0"},
		node.Boot:   {"boot 2", "keys put back", "boot 0"},
		node.Test:   {"test 2", "keys put back", "test 1"},
	} {
		w, _ := newWorldWithBusyNode(t)
		m := w.machines["w-1"]
		m.generation, m.effects = 2, nil
		ran, generations := m.current, slices.Clone(m.generations)
		w.revision++
		if _, err := w.apply(func(o *Options) { o.Goal, o.RollbackAll = goal, true }); err == nil {
			t.Errorf("apply %s succeeded, although w-2 is busy", goal)
		}
		var did []string
		for _, what := range m.effects {
			if action, path, ok := strings.Cut(what, " /nix/store/"); ok {
				revision, _, _ := strings.Cut(path, "-")
				number, _ := strconv.Atoi(revision)
				what = fmt.Sprintf("%s %d", action, number)
			}
			did = append(did, what)
		}
		if diff := cmp.Diff(want, did); diff != "" {
			t.Errorf("apply %s: %s", goal, diff)
		}
		if m.current != ran || m.generation != 2 {
			t.Errorf("apply %s: generation %d boots next, and %s runs", goal, m.generation, m.current)
		}
		if added := len(m.generations) - len(generations); goal == node.Test && added != 0 || goal != node.Test && added != 1 {
			t.Errorf("apply %s: restoring made generations of its own: %q", goal, m.generations)
		}
	}
}

// A rollback to a system that was collected as garbage fails with an error that names it.
func TestRollbackToMissingSystem(t *testing.T) {
	t.Parallel()
	w := newWorldDeployedTwice(t)
	m := w.machines["w-1"]
	m.collected = m.generations[1]
	m.generations, m.generation = []string{m.current}, 1
	results, err := w.rollback(t.Context())
	if err == nil || !strings.Contains(err.Error(), "w-1: roll back: the node no longer has "+m.collected) || failure.KindOf(err) != failure.Activation {
		t.Errorf("%v", err)
	}
	wantTexts(t, outcomes(results), "w-1 failed")
}
