package schedulers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/e2e/lab"
)

// Made once for all tests.
var (
	program string // nixbench
	nixpkgs string // the fixture
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m, &program, &nixpkgs)) }

// cluster is the hive of the template schedulers on an empty hypervisor of the lab.
type cluster struct {
	*testing.T
	l   *lab.Lab
	dir string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	if os.Getenv("NIXBENCH_E2E") == "" {
		t.Skip("needs NIXBENCH_E2E=1")
	}
	image := lab.Image(t, "container", "--kubernetes", "--slurm", "--size", "6G")
	c := &cluster{T: t, dir: t.TempDir()}
	c.l = lab.Hypervisor(t)
	hive, err := filepath.Abs("hive.nix")
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("import %s { nixpkgs = %s; uri = %q; poolPath = %q; image = %q; }\n", hive, nixpkgs, c.l.URI("lxc"), c.l.PoolPath(), image)
	if err := os.WriteFile(filepath.Join(c.dir, "hive.nix"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// try runs nixbench in the lab's network.
func (c *cluster) try(args ...string) (code int, output string) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), 8*time.Minute)
	defer cancel()
	cmd := c.l.Command(ctx, program, args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig, "HOME="+c.dir, "NO_COLOR=1", "SSH_AUTH_SOCK=")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	begin := time.Now()
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.Fatal(err)
	}
	c.Logf("nixbench %s: exit code %d after %.1f s\n%s", strings.Join(args, " "), cmd.ProcessState.ExitCode(), time.Since(begin).Seconds(), out.String())
	return cmd.ProcessState.ExitCode(), out.String()
}

// run runs nixbench, which must succeed, and returns what it prints.
func (c *cluster) run(args ...string) string {
	c.Helper()
	code, out := c.try(args...)
	if code != 0 {
		c.Fatalf("nixbench %s: exit code %d", strings.Join(args, " "), code)
	}
	return out
}
