package slurm

import (
	"context"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/deploy/engine"
)

// failing returns what the conditions miss, one line for each.
func failing(ctx context.Context, e *Engine, deep bool) string {
	var lines []string
	for _, c := range e.Conditions(engine.CheckOptions{Deep: deep}) {
		if err := c.Probe(ctx); err != nil {
			lines = append(lines, c.Name+": "+err.Error())
		}
	}
	return strings.Join(lines, "\n")
}

func TestConditions(t *testing.T) {
	for name, test := range map[string]struct {
		change func(c *controller)
		deep   bool
		want   string
	}{
		"well":       {func(c *controller) {}, false, ""},
		"well, deep": {func(c *controller) {}, true, ""},
		"absent":     {func(c *controller) { delete(c.nodes, "c-2") }, false, "2 compute nodes idle or running jobs: c-2 is not a member of the cluster"},
		"stranger":   {func(c *controller) { c.nodes["c-9"] = c.nodes["c-1"] }, false, "2 compute nodes idle or running jobs: c-9 is a member of the cluster, and is not in the hive"},
		"down":       {func(c *controller) { c.nodes["c-1"].base = "DOWN" }, false, "2 compute nodes idle or running jobs: c-1 is DOWN+DYNAMIC_NORM"},
		"drained": {func(c *controller) {
			c.nodes["c-1"].flags, c.nodes["c-1"].reason = []string{"DRAIN"}, "Kill task failed"
		}, false, "2 compute nodes idle or running jobs: c-1 is IDLE+DYNAMIC_NORM+DRAIN (Kill task failed [root@1795363543])"},
		"no answer":   {func(c *controller) { c.fails["scontrol"] = "Unable to contact slurm controller (connect failure)" }, false, "slurmctld answers: head: scontrol: exit status 1: Unable to contact slurm controller (connect failure)\n2 compute nodes idle or running jobs: head: env: exit status 1: Unable to contact slurm controller (connect failure)"},
		"srun fails":  {func(c *controller) { c.fails["srun --immediate"] = "" }, true, "srun runs on 2 compute nodes: head: setpriv: exit status 1:"},
		"batch fails": {func(c *controller) { c.fails["sbatch"] = "" }, true, "a batch job runs srun on 2 compute nodes: head: setpriv: exit status 1:"},
	} {
		c := newController(t, "c-1", "c-2")
		test.change(c)
		if got := failing(t.Context(), c.engine("c-1", "c-2"), test.deep); got != test.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, test.want)
		}
		if failed := strings.Contains(test.want, "setpriv:"); failed != c.called("scancel --quiet --name=nixbench-check") {
			t.Errorf("%s: the job of a failed check is cancelled: %v", name, !failed)
		}
	}
}
