package provision

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/e2e/lab"
)

// newContainers returns a hive with so many containers of the role w.
func newContainers(t *testing.T, count int) *bareHypervisor {
	if os.Getenv("NIXBENCH_E2E") == "" {
		t.Skip("needs NIXBENCH_E2E=1")
	}
	image := lab.Image(t, "container")
	return newBareHypervisor(t, fmt.Sprintf(`{
    count = %d; vcpus = 1; memory = "512M"; image = "%s"; init = "/usr/sbin/lab-init";
    modules = [ { environment.etc."version".text = "one"; } ];
  }`, count, image))
}

// killAfter runs nixbench and kills it after this time, if it still runs then.
func (b *bareHypervisor) killAfter(after time.Duration, args ...string) (killed bool) {
	b.t.Helper()
	cmd := b.l.Command(b.t.Context(), program, append([]string{"-f", filepath.Join(b.dir, "hive.nix")}, args...)...)
	cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig)
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() { over <- cmd.Wait() }()
	select {
	case <-over:
		return false
	case <-time.After(after):
		_ = cmd.Process.Kill()
		<-over
		return true
	}
}

// When apply or destroy is killed at a random moment, the next apply succeeds, and the next destroy
// leaves nothing.
func TestKilled(t *testing.T) {
	t.Parallel()
	killAtRandom(t, 4)
}

// TestKilledOften is TestKilled with more rounds.
func TestKilledOften(t *testing.T) {
	t.Parallel()
	killAtRandom(t, 10)
}

// killAtRandom kills an apply and a destroy in each round.
func killAtRandom(t *testing.T, rounds int) {
	t.Helper()
	b := newContainers(t, 2)
	before := b.listObjects("lxc")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	longest := 3 * time.Second // of an apply on this machine
	for round := range rounds {
		after := 100*time.Millisecond + time.Duration(dice.Int64N(int64(longest)))
		killed := b.killAfter(after, "apply")
		t.Logf("round %d: apply was killed after %v: %t", round, after, killed)
		if round%3 != 2 {
			begin := time.Now()
			_, stderr := b.run(0, "apply")
			longest = max(longest, time.Since(begin))
			if got := results(stderr); len(got) != 2 || slices.ContainsFunc(got, func(r string) bool { return strings.Contains(r, "failed") }) {
				t.Errorf("round %d: %q", round, got)
			}
			_, stderr = b.run(0, "apply")
			b.want("again", results(stderr), []string{"w-1 unchanged", "w-2 unchanged"})
		}
		after = 100*time.Millisecond + time.Duration(dice.Int64N(int64(time.Second)))
		killed = b.killAfter(after, "destroy", "--yes")
		t.Logf("round %d: destroy was killed after %v: %t", round, after, killed)
		b.run(0, "destroy", "--yes")
		b.want("left", b.listObjects("lxc"), before)
		if t.Failed() {
			return
		}
	}
}
