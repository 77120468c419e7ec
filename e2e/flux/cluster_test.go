package flux

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

// cluster is a hive with the roles leader and compute, whose machines nixbench creates as containers of the lab's
// hypervisor.
type cluster struct {
	*testing.T
	l     *lab.Lab
	dir   string
	image string
}

func newCluster(t *testing.T) *cluster {
	if os.Getenv("NIXBENCH_E2E") == "" {
		t.Skip("needs NIXBENCH_E2E=1")
	}
	if os.Getenv("NIXBENCH_FLUX_SRC") == "" {
		t.Skip("needs NIXBENCH_FLUX_SRC, a folder with checkouts of Flux, which is in no package registry; see e2e/lab/README.md")
	}
	c := &cluster{T: t, dir: t.TempDir(), image: lab.Image(t, "container", "--flux")}
	c.l = lab.Hypervisor(t)
	return c
}

// writeHive writes hive.nix with a leader, compute nodes, and settings of all nodes.
func (c *cluster) writeHive(compute int, settings string) {
	c.Helper()
	modules, err := filepath.Abs("../../modules/flux")
	if err != nil {
		c.Fatal(err)
	}
	machine := fmt.Sprintf(`image = "%s"; init = "/usr/sbin/lab-init"; vcpus = 2; memory = "1G";`, c.image)
	text := fmt.Sprintf(`{
  meta.nixpkgs = import %[1]s { system = "x86_64-linux"; };
  meta.name = "bench";
  cluster.hypervisors.default = { uri = "%[2]s"; poolPath = "%[3]s"; };
  defaults = { pkgs, ... }: {
    system.stateVersion = "25.05";
    services.openssh.enable = true;
    boot.isContainer = true;
    %[4]s
  };
  roles.leader = { %[5]s modules = [ %[6]s/leader.nix ]; };
  roles.compute = { count = %[7]d; %[5]s modules = [ %[6]s/compute.nix ]; };
}
`, nixpkgs, c.l.URI("lxc"), c.l.PoolPath(), settings, machine, modules, compute)
	if err := os.WriteFile(filepath.Join(c.dir, "hive.nix"), []byte(text), 0o600); err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := c.l.Command(ctx, program, args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig, "HOME="+c.dir, "NO_COLOR=1", "SSH_AUTH_SOCK=")
	return cmd
}

// try runs nixbench in the lab's network.
func (c *cluster) try(args ...string) (code int, stdout, stderr string) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), 4*time.Minute)
	defer cancel()
	begin := time.Now()
	cmd := c.command(ctx, args...)
	var out, diag bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diag
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.Fatal(err)
	}
	c.Logf("nixbench %s: exit code %d after %.1f s\n%s%s", strings.Join(args, " "), cmd.ProcessState.ExitCode(), time.Since(begin).Seconds(), out.String(), diag.String())
	return cmd.ProcessState.ExitCode(), out.String(), diag.String()
}

// run runs nixbench, which must succeed, and returns what it prints on stdout and stderr.
func (c *cluster) run(args ...string) string {
	c.Helper()
	code, out, diag := c.try(args...)
	if code != 0 {
		c.Fatalf("nixbench %s: exit code %d", strings.Join(args, " "), code)
	}
	return out + diag
}

// tryOn runs a script on a node, and returns what it prints.
func (c *cluster) tryOn(node, script string) (string, error) {
	ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
	defer cancel()
	out, err := c.command(ctx, "ssh", node, "--", "{ "+script+"\n} 2>&1").Output()
	return strings.TrimSpace(string(out)), err
}

// runOn runs a script on a node, which must succeed, and returns what it prints.
func (c *cluster) runOn(node, script string) string {
	c.Helper()
	out, err := c.tryOn(node, script)
	if err != nil {
		c.Fatalf("%s: %s: %v\n%s", node, script, err, out)
	}
	return out
}

// waitForOutput waits until the script on the node prints want.
func (c *cluster) waitForOutput(limit time.Duration, node, script, want string) {
	c.Helper()
	var got string
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if got, _ = c.tryOn(node, script); got == want {
			return
		}
	}
	c.Fatalf("%s: %s: %q after %s, want %q", node, script, got, limit, want)
}

// owner begins a command of the owner of the instance, who may submit jobs.
const owner = "cd / && setpriv --reuid=flux --regid=flux --init-groups -- "

// submit submits a job on the leader and returns its id.
func (c *cluster) submit(options, command string) string {
	c.Helper()
	// Without a UTF-8 locale, Flux prints the first character of an id as f.
	return strings.Replace(c.runOn("leader-1", owner+"flux submit "+options+" "+command), "ƒ", "f", 1)
}

// waitForJob waits until a job has ended, and checks that it was started once and has succeeded.
func (c *cluster) waitForJob(limit time.Duration, id string) {
	c.Helper()
	c.waitForOutput(limit, "leader-1", "flux jobs --no-header --format='{status} {returncode}' "+id+"; flux job eventlog "+id+" | grep -cE ' start( |$)'", "COMPLETED 0\n1")
}

// nodeStates returns a line for each node, which changes when the node is deployed, rebooted or recreated.
func (c *cluster) nodeStates(nodes ...string) string {
	c.Helper()
	var all []string
	for _, node := range nodes {
		all = append(all, c.runOn(node, "echo $(readlink /nix/var/nix/profiles/system; cat /proc/sys/kernel/random/boot_id)"))
	}
	return strings.Join(all, "\n")
}

// checkOutput checks what a script on a node prints.
func (c *cluster) checkOutput(node, script, want string) {
	c.Helper()
	if got := c.runOn(node, script); got != want {
		c.Errorf("%s: %s: %q, want %q", node, script, got, want)
	}
}
