package slurm

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/guests"
)

// cluster is a hive with the roles controller, compute, login and accounting, whose machines nixbench creates as
// containers of the lab's hypervisor.
type cluster struct {
	*guests.Cluster
	tags  string // of the role compute, in Nix
	login int    // the number of login nodes
	// accounting is the number of nodes with slurmdbd.
	accounting int
}

func newCluster(t *testing.T) *cluster {
	return &cluster{Cluster: guests.New(t, program, 10*time.Minute, "--slurm"), tags: `"ssd"`}
}

// writeHive writes hive.nix with one controller, compute nodes, and settings of all nodes.
func (c *cluster) writeHive(compute int, settings string) {
	c.Helper()
	machine := fmt.Sprintf(`image = "%s"; init = "/usr/sbin/lab-init"; vcpus = 2; memory = "1G";`, c.Image)
	c.WriteHiveFile(fmt.Sprintf(`{
  meta.nixpkgs = import %[1]s { system = "x86_64-linux"; };
  meta.name = "bench";
  cluster.hypervisors.default = { uri = "%[2]s"; poolPath = "%[3]s"; };
  defaults = { config, pkgs, ... }: {
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
`, nixpkgs, c.Lab.URIs["lxc"], c.Lab.PoolPath, settings, machine, c.Path("../../modules/slurm"), compute, c.tags, c.login, c.accounting))
}

// submit submits a batch job on the controller and returns its id.
func (c *cluster) submit(options, script string) string {
	c.Helper()
	return c.RunOn("controller-1", "sbatch --uid=nobody --parsable --chdir=/ --output=/dev/null "+options+" --wrap='"+script+"'")
}

// schedulingTime is the time limit for the start of a job. SLURM may look only once a minute for jobs to start.
const schedulingTime = 90 * time.Second

// waitForJob waits until a job has ended, and checks its state, the number of its restarts, and its exit code.
func (c *cluster) waitForJob(limit time.Duration, id string) {
	c.Helper()
	c.WaitForOutput(limit, "controller-1", "scontrol show job "+id+" | grep -oE '(JobState|Restarts|ExitCode)=[^ ]*' | tr '\n' ' '",
		"JobState=COMPLETED Restarts=0 ExitCode=0:0")
}

// seconds returns the time, in seconds since 1970, that a script on a node prints.
func (c *cluster) seconds(node, script string) int64 {
	c.Helper()
	out := c.RunOn(node, script)
	n, err := strconv.ParseInt(out, 10, 64)
	if err != nil {
		c.Fatalf("%s: %s: %q", node, script, out)
	}
	return n
}

// startOf returns the time, in seconds since 1970, at which systemd last began to start a unit on a node.
func (c *cluster) startOf(node, unit string) int64 {
	c.Helper()
	return c.seconds(node, "systemctl show --timestamp=unix --property=ExecMainStartTimestamp --value "+unit+".service | tr -d @")
}
