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

func containers(t *testing.T, count int) *bench {
	if os.Getenv("NIXBENCH_E2E") == "" {
		t.Skip("needs NIXBENCH_E2E=1")
	}
	image := lab.Image(t, "container")
	return newBench(t, fmt.Sprintf(`{
    count = %d; vcpus = 1; memory = "512M"; image = "%s"; init = "/usr/sbin/lab-init";
    modules = [ { environment.etc."version".text = "one"; } ];
  }`, count, image))
}

// kill runs nixbench and kills it after a while, if it still runs then.
func (b *bench) kill(after time.Duration, args ...string) (killed bool) {
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

// Whenever apply or destroy is killed, the next apply converges, and destroy leaves nothing.
func TestKilled(t *testing.T) {
	t.Parallel()
	b := containers(t, 2)
	before := b.things("lxc")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	whole := 3 * time.Second // that an apply takes here
	for round := range 10 {
		after := 100*time.Millisecond + time.Duration(dice.Int64N(int64(whole)))
		killed := b.kill(after, "apply")
		t.Logf("round %d: apply was killed after %v: %t", round, after, killed)
		if round%3 != 2 {
			begin := time.Now()
			_, stderr := b.run(0, "apply")
			whole = max(whole, time.Since(begin))
			if got := results(stderr); len(got) != 2 || slices.ContainsFunc(got, func(r string) bool { return strings.Contains(r, "failed") }) {
				t.Errorf("round %d: %q", round, got)
			}
			_, stderr = b.run(0, "apply")
			b.want("again", results(stderr), []string{"w-1 unchanged", "w-2 unchanged"})
		}
		after = 100*time.Millisecond + time.Duration(dice.Int64N(int64(time.Second)))
		killed = b.kill(after, "destroy", "--yes")
		t.Logf("round %d: destroy was killed after %v: %t", round, after, killed)
		b.run(0, "destroy", "--yes")
		b.want("left", b.things("lxc"), before)
		if t.Failed() {
			return
		}
	}
}
