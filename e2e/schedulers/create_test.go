package schedulers

import (
	"strings"
	"testing"
	"time"
)

// The same hive, on an empty hypervisor, gives a cluster of each scheduler, which works.
func TestCreate(t *testing.T) {
	for scheduler, use := range map[string]struct{ script, want string }{
		"slurm":      {"runuser -u nobody -- srun --chdir=/ -N2 hostname | sort", "node-1\nnode-2\n"},
		"kubernetes": {"kubectl --kubeconfig /etc/kubernetes/admin.conf get nodes --no-headers | awk '{print $1, $2}' | sort", "head-1 Ready\nnode-1 Ready\nnode-2 Ready\n"},
	} {
		t.Run(scheduler, func(t *testing.T) {
			c := newCluster(t)
			began := time.Now()
			out := c.Run("apply", "--set", "scheduler="+scheduler)
			t.Logf("%s from an empty hypervisor to 1 + 2 nodes: %.1f s", scheduler, time.Since(began).Seconds())
			if !strings.Contains(out, "3 nodes in 2 units, scheduler "+scheduler) {
				t.Error("apply does not print the scheduler")
			}
			if code, got, _ := c.Try("ssh", "head-1", "--", use.script); code != 0 || !strings.HasSuffix(got, use.want) {
				t.Errorf("%s: exit code %d, %q, want %q", use.script, code, got, use.want)
			}
			c.Run("check", "--deep", "--set", "scheduler="+scheduler)
			if out := c.Run("apply", "--set", "scheduler="+scheduler); strings.Count(out, "unchanged") < 3 {
				t.Error("a second apply is not a no-op")
			}
			if out := c.Run("runs", "last"); !strings.Contains(out, "\nscheduler "+scheduler+"\n") {
				t.Error("the record of the run does not have the scheduler")
			}
			c.Run("destroy", "--yes")
		})
	}
}
