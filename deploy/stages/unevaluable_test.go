package stages

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/engine/enginetest"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
	"github.com/nixbench/nixbench/nixeval/nixlog"
)

const unevaluable = "nothing is changed, because these nodes may be members of a running cluster"

// breakRole makes a role unevaluable, as a typo in one of its modules does.
func (w *world) breakRole(role string) {
	w.hive.Broken = map[string]*nixeval.NixError{role: {Message: nixlog.Message{Raw: "undefined variable"}}}
	for i, u := range w.hive.Units {
		if u.Name == role {
			w.hive.Units[i].Deployment = nixeval.Deployment{}
		}
	}
}

// A cluster whose control planes cannot be evaluated is still treated as a running cluster.
func TestUnevaluableMembers(t *testing.T) {
	t.Parallel()
	keepGoing := func(o *Options) { o.KeepGoing = true }
	part := func(i int) func([]nixeval.Node) ([]nixeval.Node, error) {
		return func(nodes []nixeval.Node) ([]nixeval.Node, error) { return nodes[i : i+1], nil }
	}
	for name, act := range map[string]func(*world) error{
		"apply":                func(w *world) error { _, err := w.apply(keepGoing); return err },
		"reboot":               func(w *world) error { _, err := w.reboot(Options{}); return err },
		"destroy, itself":      func(w *world) error { return w.destroy(part(0)) },
		"destroy, one of them": func(w *world) error { return w.destroy(part(1)) },
	} {
		w, e := newRunningCluster(t, 1, 2)
		w.revision++
		w.breakRole("cp")
		before := w.booted()
		err := act(w)
		if !strings.Contains(fmt.Sprint(err), unevaluable) || failure.KindOf(err) != failure.Evaluation {
			t.Errorf("%s: %v", name, err)
		}
		if len(e.MemberCalls()) > 0 || !cmp.Equal(before, w.booted()) || w.machines["w-1"].boot > 0 || w.machines["w-1"].generation != 2 {
			t.Errorf("%s: %q was done; machines %v, and before %v", name, e.Calls, w.booted(), before)
		}
	}
}

// A node that cannot be evaluated and was never deployed does not stop the others, nor does one in a hive
// without an engine.
func TestUnevaluableNewNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"cp": 1, "new": 0, "w": 1})
	w.useEngine(&enginetest.Fake{})
	w.must(w.apply())
	w.hive.Nodes = append(w.hive.Nodes, nixeval.Node{Name: "new-1", Unit: "new", Role: "new", Index: 1})
	w.breakRole("new")
	w.revision++
	var eval *nixeval.EvalError
	results, err := w.apply(func(o *Options) { o.KeepGoing = true })
	if !errors.As(err, &eval) || strings.Contains(err.Error(), unevaluable) {
		t.Errorf("%v", err)
	}
	wantTexts(t, outcomes(results), "cp-1 switched", "new-1 skipped", "w-1 switched")

	w = newWorld(t, map[string]int{"a": 1, "b": 1})
	w.must(w.apply())
	w.breakRole("a")
	w.revision++
	results, err = w.apply(func(o *Options) { o.KeepGoing = true })
	if !errors.As(err, &eval) || strings.Contains(err.Error(), unevaluable) {
		t.Errorf("%v", err)
	}
	wantTexts(t, outcomes(results), "a-1 skipped", "b-1 switched")
}
