package schedulers

import (
	"strings"
	"testing"
	"time"
)

// The same hive, on an empty hypervisor, gives a cluster of each scheduler, which works.
func TestCreate(t *testing.T) {
	for scheduler, use := range map[string]struct{ script, want string }{
		"slurm":      {"srun -N2 hostname | sort", "node-1\nnode-2\n"},
		"kubernetes": {"kubectl --kubeconfig /etc/kubernetes/admin.conf get nodes --no-headers | awk '{print $1, $2}' | sort", "head-1 Ready\nnode-1 Ready\nnode-2 Ready\n"},
	} {
		t.Run(scheduler, func(t *testing.T) {
			c := newCluster(t)
			began := time.Now()
			out := c.run("apply", "--set", "scheduler="+scheduler)
			t.Logf("%s from an empty hypervisor to 1 + 2 nodes: %.1f s", scheduler, time.Since(began).Seconds())
			if !strings.Contains(out, "3 nodes in 2 units, scheduler "+scheduler) {
				t.Error("apply does not print the scheduler")
			}
			if got := c.run("ssh", "head-1", "--", use.script); !strings.HasSuffix(got, use.want) {
				t.Errorf("%s: %q, want %q", use.script, got, use.want)
			}
			c.run("check", "--deep", "--set", "scheduler="+scheduler)
			if out := c.run("apply", "--set", "scheduler="+scheduler); strings.Count(out, "unchanged") < 3 {
				t.Error("a second apply is not a no-op")
			}
			if out := c.run("runs", "last"); !strings.Contains(out, "\nscheduler "+scheduler+"\n") {
				t.Error("the record of the run does not have the scheduler")
			}
			c.run("destroy", "--yes")
		})
	}
}
