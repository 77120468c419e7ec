package slurm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// packagedSlurm is the version of SLURM on the lab's machines.
const packagedSlurm = "24.11.5"

// versions prints the versions of slurmdbd, slurmctld and slurmd that run, in this order.
const versions = `sacctmgr show configuration | sed -n 's/^SLURMDBD_VERSION *= *//p'
scontrol show config | sed -n 's/^SLURM_VERSION *= *//p'
scontrol --oneliner show nodes | grep -o ' Version=[^ ]*' | cut -d= -f2`

// A cluster with accounting is upgraded to the SLURM of another Debian release while a job runs and more are queued: none is lost,
// restarted or fails. slurmdbd changes first, then slurmctld, then slurmd. Changes that SLURM does not support are refused.
func TestUpgrade(t *testing.T) {
	c := newCluster(t)
	folder, newer := otherSlurm(t, "sid")
	upgraded := fmt.Sprintf(`nixbench.slurm.package = pkgs.runCommand "slurm-%[1]s" { passthru = { pname = "slurm"; version = "%[1]s"; }; } "cp -R ${%[2]s} $out";
    environment.etc.other-slurm.source = "${config.nixbench.slurm.package}";`, newer, folder)
	nodes := []string{"accounting-1", "controller-1", "compute-1", "compute-2"}
	c.accounting = 1
	c.writeHive(2, "")
	c.Run("apply")
	c.CheckOutput("controller-1", versions, strings.TrimSpace(strings.Repeat(packagedSlurm+"\n", 4)))

	// Refused before anything changes: a release that is too far away.
	before := c.NodeStates(nodes...)
	c.writeHive(2, `nixbench.slurm.package = pkgs.slurm // { version = "26.11.0"; };`)
	if code, _, diag := c.Try("apply"); code != 8 || !strings.Contains(diag, "has release 24.11: this slurmdbd does not support releases before 25.05") &&
		!strings.Contains(diag, "has release 24.11: this slurmctld does not support releases before 25.05") {
		t.Errorf("apply with 26.11: exit code %d", code)
	}
	if now := c.NodeStates(nodes...); now != before {
		t.Errorf("the refused upgrade has changed nodes: from\n%s\nto\n%s", before, now)
	}

	c.writeHive(2, upgraded)
	if code, _, diag := c.Try("plan"); code != 0 && strings.Contains(diag, "does not support releases before") {
		t.Skipf("Debian sid has SLURM %s, and %s cannot be upgraded to it: %s", newer, packagedSlurm, diag)
	}
	jobs := []string{c.submit("--nodelist=compute-1", "srun sleep 40")}
	c.WaitForOutput(schedulingTime, "controller-1", "squeue --noheader --format='%T %N'", "RUNNING compute-1")
	for range 12 {
		jobs = append(jobs, c.submit("--exclusive", "sleep 1"))
	}
	began := time.Now()
	c.Run("apply")
	t.Logf("from %s to %s, 4 nodes, 13 jobs: %.1f s", packagedSlurm, newer, time.Since(began).Seconds())
	c.CheckOutput("controller-1", versions, strings.TrimSpace(strings.Repeat(newer+"\n", 4)))
	for _, job := range jobs {
		c.waitForJob(90*time.Second, job)
	}
	c.WaitForOutput(time.Minute, "controller-1", "sacct --noheader --allocations --parsable2 --format=state | sort | uniq -c | tr -s ' '", fmt.Sprintf("%d COMPLETED", len(jobs)))
	var last int64
	for _, daemon := range []struct{ node, unit string }{{"accounting-1", "slurmdbd"}, {"controller-1", "slurmctld"}, {"compute-1", "slurmd"}} {
		started := c.startOf(daemon.node, daemon.unit)
		if started < last {
			t.Errorf("%s was started at %d, before the daemon that must be upgraded first (%d)", daemon.unit, started, last)
		}
		last = started
	}
	c.CheckOutput("controller-1", "runuser -u nobody -- srun --chdir=/ -N2 hostname | sort | tr '\\n' ' '", "compute-1 compute-2")
	c.Run("check", "--deep")

	// Back again is refused.
	before = c.NodeStates(nodes...)
	c.writeHive(2, "")
	if code, _, diag := c.Try("apply"); code != 8 || !strings.Contains(diag, "does not support newer releases") {
		t.Errorf("apply with the older release: exit code %d", code)
	}
	if now := c.NodeStates(nodes...); now != before {
		t.Errorf("the refused downgrade has changed nodes: from\n%s\nto\n%s", before, now)
	}
}

// otherSlurm returns a folder with the SLURM of another Debian release, and its version.
func otherSlurm(t *testing.T, suite string) (folder, version string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "../other-slurm", suite)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	folder = strings.TrimSpace(string(out))
	text, err := os.ReadFile(filepath.Join(folder, "version"))
	if err != nil {
		t.Fatal(err)
	}
	return folder, strings.TrimSpace(string(text))
}
