package guests

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/e2e/lab"
)

// Cluster is a hive and the hypervisor of its machines.
type Cluster struct {
	testing.TB
	Lab    *lab.Lab
	Dir    string          // has hive.nix and the state of nixbench
	Image  string          // the folder of the machines' image
	Output strings.Builder // what all calls of Try have printed

	program string        // nixbench
	limit   time.Duration // of a command
}

// New builds the image of the machines, with these flags of `lab image`, and starts a hypervisor without machines. The
// test is skipped unless NIXBENCH_E2E=1. Each run of nixbench, which is the given program, may take as long as limit.
func New(t testing.TB, program string, limit time.Duration, imageFlags ...string) *Cluster {
	t.Helper()
	c := &Cluster{TB: t, Image: lab.Image(t, append([]string{"container"}, imageFlags...)...), Dir: t.TempDir(), program: program, limit: limit}
	c.Lab = lab.Hypervisor(t)
	return c
}

// Path returns the absolute path of a file in the folder of the suite.
func (c *Cluster) Path(file string) string {
	c.Helper()
	path, err := filepath.Abs(file)
	if err != nil {
		c.Fatal(err)
	}
	return path
}

// WriteHiveFile writes hive.nix.
func (c *Cluster) WriteHiveFile(text string) {
	c.Helper()
	if err := os.WriteFile(filepath.Join(c.Dir, "hive.nix"), []byte(text), 0o600); err != nil {
		c.Fatal(err)
	}
}

// Command returns a command that will run nixbench in the lab's network.
func (c *Cluster) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := c.Lab.Command(ctx, c.program, args...)
	cmd.Dir = c.Dir
	cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig, "HOME="+c.Dir, "NO_COLOR=1", "SSH_AUTH_SOCK=")
	return cmd
}

// Try runs nixbench in the lab's network.
func (c *Cluster) Try(args ...string) (code int, stdout, stderr string) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), c.limit)
	defer cancel()
	begin := time.Now()
	cmd := c.Command(ctx, args...)
	var out, diag bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diag
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.Fatal(err)
	}
	c.Output.WriteString(out.String() + diag.String())
	c.Logf("nixbench %s: exit code %d after %.1f s\n%s%s", strings.Join(args, " "), cmd.ProcessState.ExitCode(), time.Since(begin).Seconds(), out.String(), diag.String())
	return cmd.ProcessState.ExitCode(), out.String(), diag.String()
}

// Run runs nixbench, which must succeed, and returns what it prints on stdout and stderr.
func (c *Cluster) Run(args ...string) string {
	c.Helper()
	code, out, diag := c.Try(args...)
	if code != 0 {
		c.Fatalf("nixbench %s: exit code %d", strings.Join(args, " "), code)
	}
	return out + diag
}
