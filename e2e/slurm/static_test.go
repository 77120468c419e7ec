package slurm

import (
	"strings"
	"testing"
	"time"
)

// A cluster whose slurm.conf has the list of nodes is scaled up while a job runs, and down while a job runs on all nodes. The controller
// gets the shorter list only after the job has ended.
func TestStaticList(t *testing.T) {
	c := newCluster(t)
	const static = `nixbench.slurm.membership = "static";`
	c.writeHive(2, static)
	c.Run("apply")
	c.CheckOutput("controller-1", registered, "compute-1 idle;compute-2 idle;")
	c.CheckOutput("controller-1", "scontrol --oneliner show nodes | grep -c DYNAMIC_NORM; true", "0")
	c.CheckOutput("compute-1", "runuser -u nobody -- srun --chdir=/ --partition=compute --constraint=compute -N2 hostname | sort | tr '\\n' ' '", "compute-1 compute-2")
	c.Run("check", "--deep")
	if out := c.Run("apply"); strings.Count(out, "unchanged") < 3 {
		t.Error("a second apply is not a no-op")
	}

	// The controller restarts with a longer list. The other compute nodes and their job stay as they are.
	others := c.NodeStates("compute-1", "compute-2")
	job := c.submit("--nodes=2", "srun sleep 20")
	c.WaitForOutput(schedulingTime, "controller-1", "squeue --noheader --format='%T %D'", "RUNNING 2")
	began := time.Now()
	c.writeHive(3, static)
	c.Run("apply")
	t.Logf("from 2 to 3 nodes: %.1f s", time.Since(began).Seconds())
	c.CheckOutput("compute-3", "systemctl show --property=NRestarts slurmd.service", "NRestarts=0") // slurmd was not started too early
	c.waitForJob(schedulingTime, job)
	c.CheckOutput("controller-1", registered, "compute-1 idle;compute-2 idle;compute-3 idle;")
	c.CheckOutput("compute-1", "grep -c NodeName= /run/slurm/conf/slurm.conf; true", "3")

	// A job runs on all nodes while one of them is removed.
	job = c.submit("--nodes=3", "srun sleep 20")
	c.WaitForOutput(schedulingTime, "controller-1", "squeue --noheader --format='%T %D'", "RUNNING 3")
	began = time.Now()
	c.writeHive(2, static)
	if out := c.Run("apply", "--yes", "-v"); !strings.Contains(out, "waits for jobs "+job) {
		t.Errorf("the drain has not reported job %s", job)
	}
	t.Logf("from 3 to 2 nodes, with a job of 20 s: %.1f s", time.Since(began).Seconds())
	c.waitForJob(schedulingTime, job)
	ended := c.seconds("controller-1", "SLURM_TIME_FORMAT=%s scontrol show job "+job+" | grep -o 'EndTime=[0-9]*' | cut -d= -f2")
	restarted := c.startOf("controller-1", "slurmctld")
	if restarted < ended {
		t.Errorf("slurmctld got the shorter list at %d, and the job ended at %d", restarted, ended)
	}
	c.CheckOutput("controller-1", registered, "compute-1 idle;compute-2 idle;")
	c.CheckOutput("controller-1", "runuser -u nobody -- srun --chdir=/ -N2 hostname | sort | tr '\\n' ' '", "compute-1 compute-2")
	if now := c.NodeStates("compute-1", "compute-2"); now != others {
		t.Errorf("scaling has changed other compute nodes: from\n%s\nto\n%s", others, now)
	}

	// A node that was destroyed takes no jobs until it is created again.
	c.Run("destroy", "--on", "compute-2", "--yes")
	c.CheckOutput("controller-1", "sinfo --noheader --nodes=compute-2 --partition=main --format='%t %E' | tr -d '*'", "drain nixbench: it was removed")
	c.Run("apply")
	c.CheckOutput("controller-1", registered, "compute-1 idle;compute-2 idle;")
	c.Run("check", "--deep")
}
