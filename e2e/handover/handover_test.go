package handover

import (
	"strings"
	"testing"
	"time"
)

// Two nodes go over between Kubernetes, SLURM and no scheduler, in place. Afterwards they have what fresh nodes
// have, and each cluster is the same as before: with its objects, and with its queue of jobs.
func TestHandover(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.writeHive("none")
	c.apply("machines without a scheduler")
	none := c.inventories()

	c.writeHive("slurm")
	c.apply("no scheduler → SLURM")
	slurm := c.inventories()
	job := c.RunOn("head-1", "sbatch --uid=nobody --parsable --hold --chdir=/ --output=/dev/null --wrap='sleep 1'")

	c.writeHive("kubernetes")
	c.apply("SLURM → Kubernetes, a new cluster")
	for node, text := range c.inventories() {
		for line := range strings.Lines(text) {
			if strings.Contains(line, "slurm") || strings.Contains(line, "munge") {
				t.Errorf("%s has with Kubernetes: %s", node, line)
			}
		}
	}
	identity := c.identity()
	c.RunOn("head-1", deployment)
	c.checkKubernetes(identity)

	c.writeHive("slurm")
	c.apply("Kubernetes → SLURM")
	c.checkInventories("Kubernetes → SLURM", slurm)
	c.WaitForOutput(time.Second, "head-1", "squeue --noheader --format='%i %T %r'", job+" PENDING JobHeldUser")

	c.writeHive("kubernetes")
	c.apply("SLURM → Kubernetes")
	c.checkKubernetes(identity)

	// The cleanup fails at its end, when nothing of Kubernetes runs any more. Both nodes go back to Kubernetes.
	c.writeHive("slurm")
	c.RunOn("node-1", "touch /run/handover-fails")
	if code, out, diag := c.Try("apply", "--rollback", "all"); code != 8 || !strings.Contains(out+diag, "this cleanup is told to fail") {
		t.Errorf("a cleanup that fails: exit code %d", code)
	}
	c.checkKubernetes(identity)
	c.RunOn("node-1", "rm /run/handover-fails")

	// nixbench is killed while a node is cleaned up. The next run finishes the handover.
	c.interrupt("node-1", func() {})
	c.RunOn("node-1", "rm /run/handover-waits")
	c.apply("Kubernetes → SLURM, after a killed run")
	c.checkInventories("after a killed run", slurm)
	c.RunOn("head-1", "scontrol release "+job)
	c.WaitForOutput(70*time.Second, "head-1", "scontrol show job "+job+" | grep -o JobState=COMPLETED", "JobState=COMPLETED")

	// The node loses its power while it is cleaned up.
	c.writeHive("kubernetes")
	c.interrupt("node-1", func() { c.virsh("destroy", "bench-node-1") })
	c.apply("SLURM → Kubernetes, after a power cut")
	c.checkKubernetes(identity)

	// By specialisation.
	c.apply("Kubernetes → SLURM, by specialisation", "--specialisation", "slurm")
	c.checkInventories("by specialisation", slurm)
	c.WaitForOutput(10*time.Second, "head-1", "runuser -u nobody -- srun --chdir=/ hostname", "node-1")
	c.apply("SLURM → Kubernetes, back from the specialisation")
	c.checkKubernetes(identity)

	c.writeHive("none")
	c.apply("Kubernetes → no scheduler")
	c.checkInventories("Kubernetes → no scheduler", none)

	if code, _, _ := c.Try("rollback", "--yes"); code != 0 {
		t.Fatalf("rollback to Kubernetes: exit code %d", code)
	}
	c.checkKubernetes(identity)
}
