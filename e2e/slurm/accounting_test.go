package slurm

import (
	"strings"
	"testing"
	"time"
)

// account prints the state of a finished job according to slurmdbd.
func account(job string) string {
	return "sacct --noheader --allocations --parsable2 --format=state --jobs=" + job
}

// Accounting is turned on in a cluster in which a job runs. Later slurmdbd is stopped while slurmctld restarts.
func TestAccounting(t *testing.T) {
	c := newCluster(t)
	c.writeHive(2, "")
	c.Run("apply")
	computes := c.NodeStates("compute-1", "compute-2")
	before := c.submit("--nodes=2", "srun sleep 25")
	c.WaitForOutput(schedulingTime, "controller-1", "squeue --noheader --format='%T %D'", "RUNNING 2")

	c.accounting = 1
	c.writeHive(2, "")
	began := time.Now()
	c.Run("apply")
	t.Logf("accounting turned on: %.1f s", time.Since(began).Seconds())
	if now := c.NodeStates("compute-1", "compute-2"); now != computes {
		t.Errorf("accounting has changed compute nodes: from\n%s\nto\n%s", computes, now)
	}
	c.waitForJob(schedulingTime, before)
	after := c.submit("--nodes=2", "srun hostname")
	for _, node := range []string{"controller-1", "compute-1"} {
		c.WaitForOutput(schedulingTime, node, account(after), "COMPLETED")
	}
	c.WaitForOutput(schedulingTime, "controller-1", account(before), "COMPLETED")
	c.Run("check", "--deep")
	if out := c.Run("apply"); strings.Count(out, "unchanged") < 4 {
		t.Error("a second apply is not a no-op")
	}

	// Without slurmdbd the cluster works, also after a restart of slurmctld. The check fails. Jobs of that time are
	// accounted later.
	c.RunOn("accounting-1", "systemctl stop slurmdbd.service")
	if code, _, diag := c.Try("check", "--timeout", "10s"); code != 9 || !strings.Contains(diag, "slurmdbd answers: ") {
		t.Errorf("check without slurmdbd: exit code %d", code)
	}
	c.RunOn("controller-1", "systemctl restart --no-block slurmctld.service")
	c.WaitForOutput(90*time.Second, "controller-1", "scontrol ping | grep -c 'is UP'", "1")
	offline := c.submit("", "hostname")
	c.waitForJob(schedulingTime, offline)
	c.RunOn("accounting-1", "systemctl start slurmdbd.service")
	c.WaitForOutput(60*time.Second, "controller-1", account(offline), "COMPLETED")
	c.Run("check")

	// slurmctld has given up its own id once, and not at each start. Its state is protected from the database of another cluster.
	const adoptions = "journalctl --no-pager --unit=slurmctld | grep -c 'accounting is new'; true"
	c.CheckOutput("controller-1", adoptions, "1")
	c.RunOn("controller-1", "systemctl restart slurmctld.service")
	c.CheckOutput("controller-1", adoptions, "1")
	c.RunOn("controller-1", `systemctl stop slurmctld.service; cp -p /var/spool/slurmctld/clustername /root/; sed -i 's/|.*/|1/' /var/spool/slurmctld/clustername
systemctl start --no-block slurmctld.service`)
	c.WaitForOutput(time.Minute, "controller-1", "journalctl --no-pager --unit=slurmctld | grep -q 'CLUSTER ID MISMATCH' && echo refused", "refused")
	c.RunOn("controller-1", "systemctl stop slurmctld.service; cp -p /root/clustername /var/spool/slurmctld/; systemctl start slurmctld.service")
	c.Run("check")

	// A recreated node with slurmdbd has a new database. slurmctld registers there, while a job runs.
	running := c.submit("--nodes=2", "srun sleep 20")
	c.WaitForOutput(schedulingTime, "controller-1", "squeue --noheader --format='%T %D'", "RUNNING 2")
	c.Run("destroy", "--on", "accounting-1", "--yes")
	c.Run("apply")
	c.CheckOutput("controller-1", adoptions, "2")
	c.waitForJob(schedulingTime, running)
	later := c.submit("", "hostname")
	c.WaitForOutput(schedulingTime, "controller-1", account(later), "COMPLETED")
	if now := c.NodeStates("compute-1", "compute-2"); now != computes {
		t.Errorf("the new database has changed compute nodes: from\n%s\nto\n%s", computes, now)
	}
	c.Run("check", "--deep")
}

// The controller has the database. All nodes are created at the same time.
func TestAccountingOnController(t *testing.T) {
	c := newCluster(t)
	c.writeHive(1, `nixbench.slurm.accountingRole = "controller";`)
	c.Run("apply")
	job := c.submit("", "hostname")
	c.WaitForOutput(schedulingTime, "controller-1", account(job), "COMPLETED")
	c.Run("reboot", "--on", "controller-1", "--yes")
	job = c.submit("", "hostname")
	c.WaitForOutput(schedulingTime, "controller-1", account(job), "COMPLETED")
}
