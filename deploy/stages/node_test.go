package stages

import (
	"testing"

	"github.com/nixbench/nixbench/deploy/node"
)

// A copied system is protected from the node's garbage collector until its activation, which
// with waves can be much later.
func TestCopiedSystemIsProtected(t *testing.T) {
	t.Parallel()
	for goal, protected := range map[node.Goal]bool{node.Switch: true, node.Boot: true, node.Test: true, node.Push: true, node.DryActivate: false} {
		w := newWorld(t, map[string]int{"w": 1})
		w.must(w.apply())
		first := w.machines["w-1"].protected
		w.revision++
		if _, err := w.apply(func(o *Options) { o.Goal = goal }); err != nil {
			t.Errorf("apply %s: %v", goal, err)
		}
		if got := w.machines["w-1"].protected; (got != first) != protected || first == "" {
			t.Errorf("apply %s: %q is protected, and before %q", goal, got, first)
		}
	}
}
