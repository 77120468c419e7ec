package slurm

import (
	"strings"
	"testing"
	"time"
)

// registered prints the compute nodes with their states.
const registered = "sinfo --noheader --Node --partition=main --format='%N %T' | tr '\\n' ';'"

// One cluster from its creation on an empty hypervisor to its destruction: it is scaled up, and down
// while a job runs on all of its nodes.
func TestLifecycle(t *testing.T) {
	c := newCluster(t)
	c.writeHive(2, "")
	began := time.Now()
	const usage = "nixbench exec --on controller-1 -- sinfo shows the nodes of the cluster"
	if out := c.Run("apply"); !strings.Contains(out, usage) {
		t.Error("the first apply does not show how to use the cluster")
	}
	t.Logf("from an empty hypervisor to 1 + 2 nodes: %.1f s", time.Since(began).Seconds())
	c.CheckOutput("controller-1", registered, "compute-1 idle;compute-2 idle;")
	c.CheckOutput("controller-1", "runuser -u nobody -- srun --chdir=/ -N2 hostname | sort | tr '\\n' ' '", "compute-1 compute-2")
	c.CheckOutput("compute-1", "runuser -u nobody -- srun --chdir=/ --partition=compute --constraint='ssd&compute' -N2 hostname | sort | tr '\\n' ' '", "compute-1 compute-2")
	if out := c.Run("exec", "--on", "controller-1", "--", "runuser", "-u", "nobody", "--", "srun", "--chdir=/", "hostname"); !strings.Contains(out, "compute-") {
		t.Error("srun as the note has it runs no job")
	}
	if code, _, diag := c.Try("kubeconfig"); code != 2 || !strings.Contains(diag, "its cluster is SLURM") {
		t.Errorf("kubeconfig: exit code %d\n%s", code, diag)
	}
	c.Run("status", "--check")
	c.Run("check", "--deep")
	if out := c.Run("apply"); strings.Count(out, "unchanged") < 3 || strings.Contains(out, usage) {
		t.Error("a second apply is not a no-op")
	}

	c.Run("plan")

	// Root of a node cannot become root of another by a job.
	if out, err := c.TryOn("compute-1", "srun --nodelist=compute-2 id -u"); err == nil {
		t.Errorf("a job of root runs: %s", out)
	}
	// munged runs with another key. A check detects this, and apply repairs the key, also in munged.
	c.RunOn("compute-1", "head -c 1024 /dev/urandom > /root/key; cat /root/key > "+mungeKey+"; systemctl restart munged")
	if code, _, diag := c.Try("check", "--timeout", "10s"); code != 9 || !strings.Contains(diag, "compute-1: munged.service does not accept what munged of controller-1 has signed") {
		t.Errorf("check with another key of munged: exit code %d", code)
	}
	if out := c.Run("apply"); !strings.Contains(out, "uploaded munge; restarted munged.service") {
		t.Error("munged with another key was not restarted")
	}
	c.WaitForOutput(time.Minute, "controller-1", "runuser -u nobody -- srun --chdir=/ -N2 hostname | sort | tr '\\n' ' '", "compute-1 compute-2")
	c.Run("check")
	if out := c.Run("apply"); strings.Count(out, "unchanged") < 3 {
		t.Error("an apply after the repair of a key is not a no-op")
	}

	// Scaling does not change the other nodes.
	others := c.NodeStates("controller-1", "compute-1", "compute-2")
	c.Run("apply", "--set", "roles.compute.count=3")
	c.CheckOutput("controller-1", registered, "compute-1 idle;compute-2 idle;compute-3 idle;")
	job := c.submit("--nodes=3", "srun sleep 20")
	c.WaitForOutput(schedulingTime, "controller-1", "squeue --noheader --format='%T %D'", "RUNNING 3")
	if out := c.Run("apply", "--set", "roles.compute.count=2", "--yes", "-v"); !strings.Contains(out, "waits for jobs "+job) {
		t.Errorf("the drain has not reported job %s", job)
	}
	c.waitForJob(10*time.Second, job)
	c.CheckOutput("controller-1", registered, "compute-1 idle;compute-2 idle;")
	if now := c.NodeStates("controller-1", "compute-1", "compute-2"); now != others {
		t.Errorf("scaling has changed other nodes: from\n%s\nto\n%s", others, now)
	}
	c.Run("check")

	// A drained node fails the check, and another run does not end the drain.
	c.RunOn("controller-1", "scontrol update nodename=compute-2 state=drain reason='bad disk'")
	if code, _, diag := c.Try("check", "--timeout", "10s"); code != 9 || !strings.Contains(diag, "compute-2 is IDLE+DRAIN+DYNAMIC_NORM (bad disk [root@") {
		t.Errorf("check with a drained node: exit code %d", code)
	}
	c.RunOn("controller-1", "scontrol update nodename=compute-2 state=undrain")

	// A recreated controller has no list of nodes. They register again.
	c.Run("destroy", "--on", "controller-1", "--yes")
	c.Run("apply")
	c.CheckOutput("controller-1", registered, "compute-1 idle;compute-2 idle;")
	c.Run("destroy", "--yes")
}
