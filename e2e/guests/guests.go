// Package guests has what the end-to-end tests of the schedulers share: a hive whose machines nixbench creates as
// containers on an empty hypervisor of the lab. A suite embeds [Cluster] in a type of its own, which writes the text of
// the hive and has the methods for its scheduler. A short example is e2e/volcano.
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
	image := lab.Image(t, append([]string{"container"}, imageFlags...)...)
	return &Cluster{TB: t, Lab: lab.Hypervisor(t), Image: image, Dir: t.TempDir(), program: program, limit: limit}
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

// TryOn runs a script on a node, and returns what it prints.
func (c *Cluster) TryOn(node, script string) (string, error) {
	ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
	defer cancel()
	out, err := c.Command(ctx, "ssh", node, "--", "{ "+script+"\n} 2>&1").Output()
	return strings.TrimSpace(string(out)), err
}

// RunOn runs a script on a node, which must succeed, and returns what it prints.
func (c *Cluster) RunOn(node, script string) string {
	c.Helper()
	out, err := c.TryOn(node, script)
	if err != nil {
		c.Fatalf("%s: %s: %v\n%s", node, script, err, out)
	}
	return out
}

// WaitForOutput waits until the script on the node prints want.
func (c *Cluster) WaitForOutput(limit time.Duration, node, script, want string) {
	c.Helper()
	var got string
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if got, _ = c.TryOn(node, script); got == want {
			return
		}
	}
	c.Fatalf("%s: %s: %q after %s, want %q", node, script, got, limit, want)
}

// CheckOutput checks what a script on a node prints.
func (c *Cluster) CheckOutput(node, script, want string) {
	c.Helper()
	if got := c.RunOn(node, script); got != want {
		c.Errorf("%s: %s: %q, want %q", node, script, got, want)
	}
}

// NodeStates returns a line for each node, which changes when the node is deployed, rebooted or recreated.
func (c *Cluster) NodeStates(nodes ...string) string {
	c.Helper()
	var all []string
	for _, node := range nodes {
		all = append(all, c.RunOn(node, "echo $(readlink /nix/var/nix/profiles/system; cat /proc/sys/kernel/random/boot_id)"))
	}
	return strings.Join(all, "\n")
}
