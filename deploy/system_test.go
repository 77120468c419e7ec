package deploy

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/state"
)

// failing is a world of two nodes that were deployed two times. The third apply cannot
// switch w-2, so --rollback-all-on-failure restores w-1.
func failing(t *testing.T) (*world, func() ([]state.NodeResult, error)) {
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

// Whatever activates a system on a node, the state has the intent before, and no intent after.
func TestIntentBeforeActivation(t *testing.T) {
	t.Parallel()
	for command, test := range map[string]struct {
		world func() (*world, func() ([]state.NodeResult, error))
		nodes string // in the order in which systems are activated
	}{
		"apply": {func() (*world, func() ([]state.NodeResult, error)) {
			w := twice(t)
			return w, func() ([]state.NodeResult, error) { w.revision++; return w.apply() }
		}, "w-1"},
		"rollback": {func() (*world, func() ([]state.NodeResult, error)) {
			w := twice(t)
			return w, func() ([]state.NodeResult, error) { return w.rollback(t.Context()) }
		}, "w-1"},
		"restore": {func() (*world, func() ([]state.NodeResult, error)) { return failing(t) }, "w-1 w-1 w-2"},
	} {
		w, act := test.world()
		var nodes []string
		w.on = func(e event.Event) {
			if e.Kind != event.NodeStart || e.Phase != event.Activate {
				return
			}
			nodes = append(nodes, e.Node)
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

// A node that is restored after a failed run runs what it ran before, and the state says so.
func TestRestore(t *testing.T) {
	t.Parallel()
	w, apply := failing(t)
	old := w.machines["w-1"].current
	results, err := apply()
	if busy := (*activate.BusyError)(nil); !errors.As(err, &busy) {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"w-1 rolled-back", "w-2 failed"}, outcomes(results)); diff != "" {
		t.Error(diff)
	}
	if got := w.machines["w-1"].current; got != old {
		t.Errorf("it runs %s, and before %s", got, old)
	}
	if confirmed := w.state().Nodes["w-1"].Good; confirmed == nil || confirmed.Path != old {
		t.Errorf("last confirmed: %+v, want %s", confirmed, old)
	}
	var texts []string
	for _, e := range w.events {
		if e.Kind == event.NodeResult && e.Node == "w-1" {
			texts = append(texts, e.Text)
		}
	}
	if last := texts[len(texts)-1]; last != "rolled back to generation 3, since another node failed" {
		t.Errorf("results of w-1: %q", texts)
	}
}
