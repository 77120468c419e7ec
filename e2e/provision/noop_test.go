package provision

import (
	"testing"
	"time"
)

// Ten machines with nothing to do.
func TestNothingToDo(t *testing.T) {
	t.Parallel()
	b := containers(t, 10)
	b.run(0, "apply")
	best := time.Hour
	for range 3 {
		code, _, stderr, took := b.try("apply")
		if code != 0 {
			t.Fatal(stderr)
		}
		best = min(best, took)
	}
	t.Logf("10 nodes, nothing to do: %.2fs; the budget is 1s", best.Seconds())
	b.run(0, "destroy", "--yes")
}
