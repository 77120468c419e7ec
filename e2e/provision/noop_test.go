package provision

import (
	"testing"
	"time"
)

// The duration of a no-op apply to ten machines, which is logged and not checked: this machine may be
// busy with other tests.
func TestNoOpDuration(t *testing.T) {
	t.Parallel()
	b := newContainers(t, 10)
	b.run(0, "apply")
	best := time.Hour
	for range 3 {
		code, _, stderr, took := b.try("apply")
		if code != 0 {
			t.Fatal(stderr)
		}
		best = min(best, took)
	}
	t.Logf("a no-op apply to 10 nodes: %.2fs; the budget is 1s", best.Seconds())
	b.run(0, "destroy", "--yes")
}
