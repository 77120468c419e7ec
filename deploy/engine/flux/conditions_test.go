package flux

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
	const nodes = "2 compute nodes online and not drained: "
	for name, test := range map[string]struct {
		change func(i *instance)
		deep   bool
		want   string
	}{
		"well":       {func(i *instance) {}, false, ""},
		"well, deep": {func(i *instance) {}, true, ""},
		"absent":     {func(i *instance) { delete(i.nodes, "c-2") }, false, nodes + "c-2 is not a member of the cluster"},
		"offline":    {func(i *instance) { i.nodes["c-1"].offline = true }, false, nodes + "c-1 is offline"},
		"stranger":   {func(i *instance) { i.nodes["c-9"] = &standInNode{} }, false, nodes + "c-9 is a member of the cluster, and is not in the hive"},
		"drained": {func(i *instance) { i.nodes["c-1"].drained, i.nodes["c-1"].reason = true, "missing resources" }, false,
			nodes + "c-1 is drained (missing resources)"},
		"stopped": {func(i *instance) { i.queue.stopped, i.queue.reason = true, "holidays" }, false,
			"the leader's broker answers and starts jobs: no jobs are started in the queue all (holidays); on the leader: flux queue start -a"},
		"no answer": {func(i *instance) { i.fails["flux resource status"] = "Unable to connect to Flux" }, false,
			"the leader's broker answers and starts jobs: head: sh: exit status 1: Unable to connect to Flux\n" + nodes + "head: sh: exit status 1: Unable to connect to Flux"},
		"run fails":   {func(i *instance) { i.fails["flux run --job-name"] = "it failed" }, true, "flux run runs on 2 compute nodes: head: setpriv: exit status 1: it failed"},
		"batch fails": {func(i *instance) { i.fails["flux batch"] = "it failed" }, true, "a batch job runs on 2 compute nodes: head: setpriv: exit status 1: it failed"},
	} {
		i := newInstance(t, "c-1", "c-2")
		test.change(i)
		if got := failing(t.Context(), i.engine("c-1", "c-2"), test.deep); got != test.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, test.want)
		}
		if failed := strings.Contains(test.want, "setpriv"); failed != i.called("flux pkill") {
			t.Errorf("%s: the job of a failed check is cancelled: %v", name, !failed)
		}
	}
}
