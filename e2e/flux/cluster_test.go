package flux

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/guests"
)

// cluster is a hive with the roles leader and compute, whose machines nixbench creates as containers of the lab's
// hypervisor.
type cluster struct{ *guests.Cluster }

func newCluster(t *testing.T) *cluster {
	if os.Getenv("NIXBENCH_E2E") != "" && os.Getenv("NIXBENCH_FLUX_SRC") == "" {
		t.Skip("needs NIXBENCH_FLUX_SRC, a folder with checkouts of Flux, which is in no package registry; see e2e/lab/README.md")
	}
	return &cluster{guests.New(t, program, 10*time.Minute, "--flux")}
}

// writeHive writes hive.nix with a leader, compute nodes, settings of all nodes, and other options of the hive.
func (c *cluster) writeHive(compute int, settings string, options ...string) {
	c.Helper()
	machine := fmt.Sprintf(`image = "%s"; init = "/usr/sbin/lab-init"; vcpus = 2; memory = "1G";`, c.Image)
	c.WriteHiveFile(fmt.Sprintf(`{
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
  %[8]s
}
`, nixpkgs, c.Lab.URIs["lxc"], c.Lab.PoolPath, settings, machine, c.Path("../../modules/flux"), compute, strings.Join(options, "\n")))
}

// owner begins a command of the owner of the instance, who may submit jobs.
const owner = "cd / && setpriv --reuid=flux --regid=flux --init-groups -- "

// submit submits a job on the leader and returns its id.
func (c *cluster) submit(options, command string) string {
	c.Helper()
	// Without a UTF-8 locale, Flux prints the first character of an id as f.
	return strings.Replace(c.RunOn("leader-1", owner+"flux submit "+options+" "+command), "ƒ", "f", 1)
}

// waitForJob waits until a job has ended, and checks that it was started once and has succeeded.
func (c *cluster) waitForJob(limit time.Duration, id string) {
	c.Helper()
	c.WaitForOutput(limit, "leader-1", "flux jobs --no-header --format='{status} {returncode}' "+id+"; flux job eventlog "+id+" | grep -cE ' start( |$)'", "COMPLETED 0\n1")
}
