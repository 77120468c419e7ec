package slurm

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

// cluster is a hive with the roles controller, compute, login and accounting, whose machines nixbench creates as
// containers of the lab's hypervisor.
type cluster struct {
	*testing.T
	l     *lab.Lab
	dir   string
	image string
	tags  string // of the role compute, in Nix
	login int    // the number of login nodes
	// accounting is the number of nodes with slurmdbd.
	accounting int
	output     strings.Builder // of all commands
}

func newCluster(t *testing.T) *cluster {
	if os.Getenv("NIXBENCH_E2E") == "" {
		t.Skip("needs NIXBENCH_E2E=1")
	}
	c := &cluster{T: t, dir: t.TempDir(), tags: `"ssd"`, image: lab.Image(t, "container", "--slurm")}
	c.l = lab.Hypervisor(t)
	return c
}

// writeHive writes hive.nix with one controller, compute nodes, and settings of all nodes.
func (c *cluster) writeHive(compute int, settings string) {
	c.Helper()
	modules, err := filepath.Abs("../../modules/slurm")
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
    nixbench.slurm.rolePartitions = [ "compute" ];
    %[4]s
  };
  roles.controller = { %[5]s modules = [ %[6]s/controller.nix ]; };
  roles.compute = { count = %[7]d; tags = [ %[8]s ]; %[5]s modules = [ %[6]s/compute.nix ]; };
  roles.login = { count = %[9]d; %[5]s modules = [ %[6]s/login.nix ]; };
  roles.accounting = { count = %[10]d; %[5]s modules = [ %[6]s/accounting.nix ]; };
}
`, nixpkgs, c.l.URI("lxc"), c.l.PoolPath(), settings, machine, modules, compute, c.tags, c.login, c.accounting)
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
	c.output.WriteString(out.String() + diag.String())
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

// submit submits a batch job on the controller and returns its id.
func (c *cluster) submit(options, script string) string {
	c.Helper()
	return c.runOn("controller-1", "sbatch --parsable --chdir=/ --output=/dev/null "+options+" --wrap='"+script+"'")
}

// waitForJob waits until a job has ended, and checks its state, the number of its restarts, and its exit code.
func (c *cluster) waitForJob(limit time.Duration, id string) {
	c.Helper()
	c.waitForOutput(limit, "controller-1", "scontrol show job "+id+" | grep -oE '(JobState|Restarts|ExitCode)=[^ ]*' | tr '\n' ' '",
		"JobState=COMPLETED Restarts=0 ExitCode=0:0")
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
