package slurm

import (
	"strings"
	"testing"
	"time"
)

// A running cluster is changed while jobs run and are queued: none is lost, restarted or fails.
func TestRollingChange(t *testing.T) {
	c := newCluster(t)
	c.writeHive(2, "")
	c.Run("apply")

	// The systems of all nodes change. A job runs on one node, and more jobs than fit are queued.
	long := c.submit("--nodelist=compute-1", "sleep 8")
	c.WaitForOutput(schedulingTime, "controller-1", "squeue --noheader --format='%T %N'", "RUNNING compute-1")
	var jobs []string
	for range 12 {
		jobs = append(jobs, c.submit("--exclusive", "sleep 1"))
	}
	began := time.Now()
	c.writeHive(2, `environment.etc.change.text = "2";`)
	c.Run("apply")
	t.Logf("a change of three nodes under jobs: %.1f s", time.Since(began).Seconds())
	for _, job := range append(jobs, long) {
		c.waitForJob(schedulingTime, job)
	}
	for _, node := range []string{"controller-1", "compute-1", "compute-2"} {
		c.CheckOutput(node, "cat /etc/change", "2")
	}
	c.CheckOutput("controller-1", "scontrol --oneliner show nodes | grep -c DRAIN; true", "0")

	// A setting of slurm.conf changes only the controller, and the compute nodes fetch it, while a job runs.
	computes := c.NodeStates("compute-1", "compute-2")
	long = c.submit("--nodes=2", "srun sleep 8")
	c.WaitForOutput(schedulingTime, "controller-1", "squeue --noheader --format='%T %D'", "RUNNING 2")
	c.writeHive(2, `environment.etc.change.text = "2"; nixbench.slurm.settings.InactiveLimit = 77;`)
	if out := c.Run("apply"); !strings.Contains(out, "1 switched, 2 unchanged") {
		t.Error("a setting of slurm.conf has not changed the controller alone")
	}
	if now := c.NodeStates("compute-1", "compute-2"); now != computes {
		t.Errorf("a setting of slurm.conf has changed compute nodes: from\n%s\nto\n%s", computes, now)
	}
	for _, node := range []string{"compute-1", "compute-2"} {
		c.WaitForOutput(time.Minute, node, "grep InactiveLimit /run/slurm/conf/slurm.conf; scontrol show config | grep -o 'InactiveLimit.*'", "InactiveLimit=77\nInactiveLimit           = 77 sec")
	}
	c.waitForJob(schedulingTime, long)

	// Tags of registered nodes become their features. A login node submits jobs.
	c.tags, c.login = `"nvme"`, 1
	c.writeHive(2, `environment.etc.change.text = "2"; nixbench.slurm.settings.InactiveLimit = 77;`)
	c.Run("apply")
	c.CheckOutput("login-1", "runuser -u nobody -- srun --chdir=/ --constraint='nvme&compute' -N2 hostname | sort | tr '\\n' ' '", "compute-1 compute-2")
	c.CheckOutput("login-1", "sinfo --noheader --partition=main --format=%f", "nvme,compute")

	// After a killed run a node is drained. The next run ends this drain, although it changes nothing else.
	c.RunOn("controller-1", "scontrol update nodename=compute-1 state=drain reason='nixbench: it is about to change'")
	c.Run("apply")
	c.WaitForOutput(70*time.Second, "controller-1", registered, "compute-1 idle;compute-2 idle;")

	// A reboot waits for the job of the node. The node finds the cluster again by itself.
	long = c.submit("--nodelist=compute-2", "sleep 5")
	c.WaitForOutput(schedulingTime, "controller-1", "squeue --noheader --format='%T %N'", "RUNNING compute-2")
	c.Run("reboot", "--on", "compute-2", "--yes")
	c.waitForJob(10*time.Second, long)
	c.WaitForOutput(time.Minute, "controller-1", registered, "compute-1 idle;compute-2 idle;")

	// A job that does not end in time blocks the change of its node, which takes jobs again.
	hangs := c.submit("--nodelist=compute-1", "sleep 600")
	c.WaitForOutput(schedulingTime, "controller-1", "squeue --noheader --format='%T %N'", "RUNNING compute-1")
	c.writeHive(2, `environment.etc.change.text = "3"; nixbench.slurm.drainTimeout = 2;`)
	code, _, diag := c.Try("apply")
	if code == 0 || !strings.Contains(diag, "compute-1: drain: after 2s it still has jobs "+hangs) {
		t.Errorf("apply with a job that does not end: exit code %d", code)
	}
	c.WaitForOutput(time.Minute, "controller-1", "squeue --noheader --format='%T %N'; scontrol --oneliner show nodes | grep -c DRAIN", "RUNNING compute-1\n0")
	c.CheckOutput("compute-1", "cat /etc/change", "2")

	// Without a drain the node changes while the job runs.
	c.Run("apply", "--no-drain")
	c.CheckOutput("compute-1", "cat /etc/change", "3")
	c.CheckOutput("controller-1", "squeue --noheader --format='%T %N'; scontrol show job "+hangs+" | grep -o 'Restarts=0'", "RUNNING compute-1\nRestarts=0")
}
