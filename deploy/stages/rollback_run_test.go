package stages

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// rollback rolls all nodes back to what they ran before the last run.
func (w *world) rollback(ctx context.Context, options ...func(*Options)) ([]state.NodeResult, error) {
	o := Options{Options: plan.Options{Options: node.Options{Confirm: time.Minute}}}
	for _, f := range options {
		f(&o)
	}
	return w.session(w.t.Context(), "rollback", func(d *Deployer) error {
		steps, err := w.planRollback(d)
		if err != nil {
			return err
		}
		_, err = d.ExecuteSteps(ctx, steps, o)
		return err
	})
}

func (w *world) planRollback(d *Deployer) ([]Step, error) {
	return PlanRollback(w.hive.Nodes, nil, d.Store.State().Nodes, RollbackTo{}, func(nodes []nixeval.Node) []fleet.Outcome[activate.Node] {
		return inspect.Nodes(w.t.Context(), d.Fleet, nodes, 0, nil)
	})
}

// newWorldDeployedTwice returns a world of one node that was deployed two times.
func newWorldDeployedTwice(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, map[string]int{"w": 1})
	w.must(w.apply())
	w.revision++
	w.must(w.apply())
	return w
}

// Ctrl-C directly after the node has confirmed its rollback does not change the result: the node
// is switched, and no intent stays.
func TestRollbackInterruptedAfterSuccess(t *testing.T) {
	t.Parallel()
	w := newWorldDeployedTwice(t)
	ctx, cancel := context.WithCancel(t.Context())
	w.onEvent = func(e event.Event) {
		if e.Kind == event.NodeEnd && e.Phase == event.Confirm {
			cancel()
		}
	}
	results, err := w.rollback(ctx)
	if err != nil {
		t.Errorf("the rollback succeeded, but its error is %v", err)
	}
	wantTexts(t, outcomes(results), "w-1 switched")
	s := w.state()
	if len(s.Intents) > 0 {
		t.Errorf("intents that stay: %+v", s.Intents)
	}
	if confirmed := s.Nodes["w-1"].LastConfirmed; confirmed == nil || confirmed.Path != w.machines["w-1"].current {
		t.Errorf("last confirmed: %+v, and %s runs", confirmed, w.machines["w-1"].current)
	}
}

// A node on which another run is switching is not changed. The intent of a killed run
// stays in the state, because the outcome of that run is unknown.
func TestBusyNodeKeepsIntents(t *testing.T) {
	t.Parallel()
	for command, act := range map[string]func(*world) ([]state.NodeResult, error){
		"apply":    func(w *world) ([]state.NodeResult, error) { w.revision++; return w.apply() },
		"rollback": func(w *world) ([]state.NodeResult, error) { return w.rollback(w.t.Context()) },
	} {
		w := newWorldDeployedTwice(t)
		killed := state.Intent{Run: "killed", Node: "w-1", Step: string(event.Activate), Path: "/nix/store/other", Since: time.Unix(0, 0).UTC()}
		w.must(w.session(t.Context(), "killed", func(d *Deployer) error { return d.Store.Begin(killed) }))
		w.machines["w-1"].busy = true
		results, err := act(w)
		if busy := (*activate.BusyError)(nil); !errors.As(err, &busy) {
			t.Errorf("%s: %v", command, err)
		}
		if diff := cmp.Diff([]string{"w-1 failed"}, outcomes(results)); diff != "" {
			t.Errorf("%s: %s", command, diff)
		}
		if diff := cmp.Diff([]state.Intent{killed}, w.state().Intents); diff != "" {
			t.Errorf("%s: %s", command, diff)
		}
	}
}

// The previous system of a node is recorded with its own generation, even if the node would
// boot another one.
func TestGenerationOnRecord(t *testing.T) {
	t.Parallel()
	for command, act := range map[string]func(*world) ([]state.NodeResult, error){
		"apply":    func(w *world) ([]state.NodeResult, error) { w.revision++; return w.apply() },
		"rollback": func(w *world) ([]state.NodeResult, error) { return w.rollback(w.t.Context()) },
	} {
		w := newWorldDeployedTwice(t)
		running := w.machines["w-1"].current // the third generation: the image has the first
		w.machines["w-1"].generation = 2
		w.must(act(w))
		if b := w.state().Nodes["w-1"].Before; b == nil || b.Path != running || b.Generation != 3 {
			t.Errorf("%s: before it the node ran generation 3, %s; the record says %+v", command, running, b)
		}
	}
}

// The generation that the profile points to is preferred to another one of the same system.
func TestGenerationOf(t *testing.T) {
	t.Parallel()
	n := nodeWithGenerations("/a", "/b", "/a")
	for _, test := range []struct {
		profile int
		system  string
		want    int
	}{{1, "/a", 1}, {3, "/a", 3}, {2, "/a", 3}, {1, "/b", 2}, {1, "/c", 0}, {1, "", 0}} {
		n.Generation, n.Profile = test.profile, n.Generations[test.profile-1].Path
		if got := n.GenerationOf(test.system); got != test.want {
			t.Errorf("profile at %d, %q: got %d, want %d", test.profile, test.system, got, test.want)
		}
	}
}
