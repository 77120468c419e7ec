package slurm

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Two machines stand for eight nodes. They are checked, drained and removed with their machine.
func TestHollow(t *testing.T) {
	c := newCluster(t)
	c.writeHive(2, "")
	hollow := func(args ...string) []string { return append(args, "--set", "roles.compute.hollow=4") }
	c.Run(hollow("apply")...)
	nodes := func(machines ...string) string {
		var b strings.Builder
		for _, m := range machines {
			for i := range 4 {
				fmt.Fprintf(&b, "%s-h%d idle;", m, i+1)
			}
		}
		return b.String()
	}
	c.CheckOutput("controller-1", registered, nodes("compute-1", "compute-2"))
	c.CheckOutput("controller-1", "runuser -u nobody -- srun --chdir=/ -N8 printenv SLURMD_NODENAME | sort | tr '\\n' ' '", strings.TrimSpace(strings.NewReplacer(" idle;", " ").Replace(nodes("compute-1", "compute-2"))))
	c.Run(hollow("check", "--deep")...)
	if out := c.Run(hollow("apply")...); strings.Count(out, "unchanged") < 3 {
		t.Error("a second apply is not a no-op")
	}

	// A slurmd that ends is started again.
	c.RunOn("compute-1", "pkill -f -- '-N compute-1-h[2] '")
	c.WaitForOutput(time.Minute, "compute-1", "journalctl -o cat -u slurmd | grep -c 'slurmd of compute-1-h2 has ended; it starts again'", "1")
	c.WaitForOutput(time.Minute, "compute-1", "pgrep -fc -- '-N compute-1-h[2] '", "1")

	// A drained node fails the check.
	c.RunOn("controller-1", "scontrol update nodename=compute-2-h3 state=drain reason='bad disk'")
	if code, _, diag := c.Try(hollow("check", "--timeout", "2s")...); code != 9 || !strings.Contains(diag, "compute-2: 1 of its 4 hollow nodes are drained: compute-2-h3 is IDLE+DRAIN+DYNAMIC_NORM (bad disk [root@") {
		t.Errorf("check with a drained node: exit code %d", code)
	}
	c.RunOn("controller-1", "scontrol update nodename=compute-2-h3 state=undrain")

	// The machine is removed when the jobs on its nodes have ended.
	job := c.submit("--nodes=8", "srun sleep 20")
	c.WaitForOutput(schedulingTime, "controller-1", "squeue --noheader --format='%T %D'", "RUNNING 8")
	if out := c.Run(hollow("apply", "--set", "roles.compute.count=1", "--yes", "-v")...); !strings.Contains(out, "waits for jobs "+job) {
		t.Errorf("the drain has not reported job %s", job)
	}
	c.waitForJob(10*time.Second, job)
	c.CheckOutput("controller-1", registered, nodes("compute-1"))
	c.Run(hollow("check", "--set", "roles.compute.count=1")...)
	c.Run("destroy", "--yes")
}
