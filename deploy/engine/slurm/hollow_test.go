package slurm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/deploy/engine"
)

// newHollow returns a cluster in which c-1 stands for hollow nodes in the hive, and some of its nodes are registered.
func newHollow(t *testing.T, expected int, registered ...int) (*controller, *Engine) {
	t.Helper()
	c := newController(t, "c-2")
	for _, number := range registered {
		c.nodes[hollowNode("c-1", number)] = &standInNode{base: "IDLE", features: "ssd,compute", version: "24.11.5", start: 1000, unit: "running", unitTime: 1000, host: "c-1"}
	}
	e := c.engine("c-1", "c-2")
	e.Cluster.Members[1].Settings = fmt.Appendf(nil, `{"drainTimeout": 1, "features": ["ssd"], "version": "24.11.5", "hollow": %d}`, expected)
	return c, e
}

// The hollow nodes of a machine are one member.
func TestHollowMembers(t *testing.T) {
	for name, test := range map[string]struct {
		expected   int
		registered []int
		change     func(c *controller)
		problem    string
		ready      bool
	}{
		"well":    {2, []int{1, 2}, func(*controller) {}, "", true},
		"missing": {3, []int{1, 3}, func(*controller) {}, "c-1 is incomplete: 1 of its 3 hollow nodes have not registered", false},
		"none":    {2, nil, func(*controller) {}, "c-1 is not a member of the cluster", false},
		"surplus": {1, []int{1, 2, 3}, func(*controller) {}, "c-1-h2 is a member of the cluster, and is not in the hive; c-1-h3 is a member of the cluster, and is not in the hive", true},
		"down":    {2, []int{1, 2}, func(c *controller) { c.nodes["c-1-h2"].base = "DOWN" }, "c-1 is DOWN+DYNAMIC_NORM", false},
		"drained": {2, []int{1, 2}, func(c *controller) {
			c.nodes["c-1-h2"].flags, c.nodes["c-1-h2"].reason = []string{"DRAIN"}, "bad disk"
		}, "c-1: 1 of its 2 hollow nodes are drained: c-1-h2 is IDLE+DYNAMIC_NORM+DRAIN (bad disk [root@1795363543])", true},
		"its own name": {2, []int{1, 2}, func(c *controller) { c.nodes["c-1-h2"].host = "c-1-h2" }, "c-1 is incomplete: 1 of its 2 hollow nodes have not registered", false},
	} {
		c, e := newHollow(t, test.expected, test.registered...)
		test.change(c)
		if err := e.CheckNodes(t.Context(), engine.CheckOptions{}); (err == nil) != (test.problem == "") || err != nil && !strings.HasPrefix(err.Error(), test.problem) {
			t.Errorf("%s: %v, want %q", name, err, test.problem)
		}
		members, err := e.Members(t.Context())
		if err != nil || members["c-1"].Ready != test.ready || (members["c-1"].Reason != "") != (name == "drained") {
			t.Errorf("%s: %+v, %v", name, members, err)
		}
	}
}

// A drain, its end and the removal of a machine name all of its hollow nodes.
func TestHollowDrain(t *testing.T) {
	c, e := newHollow(t, 2, 1, 2)
	if err := e.Drain(t.Context(), []string{"c-1", "c-2"}, engine.DrainOptions{}, quiet); err != nil {
		t.Fatal(err)
	}
	if !c.called("head: scontrol update nodename=c-1-h[1,2],c-2 state=drain reason=" + drainReason) {
		t.Errorf("calls: %q", c.calls)
	}
	if members, err := e.Members(t.Context()); err != nil || !members["c-1"].Drained {
		t.Errorf("%+v, %v", members, err)
	}
	if err := e.Uncordon(t.Context(), "c-1"); err != nil || !c.called("head: scontrol update nodename=c-1-h[1,2] state=undrain") {
		t.Errorf("%v, calls: %q", err, c.calls)
	}
	if err := e.RemoveMember(t.Context(), "c-1"); err != nil || !c.called("head: scontrol delete nodename=c-1-h[1,2]") {
		t.Errorf("%v, calls: %q", err, c.calls)
	}
	if got := e.jobNodes(); !slices.Equal(got, []string{"c-1-h1", "c-2"}) {
		t.Errorf("jobs run on %q", got)
	}
}

// A machine is drained while one of its hollow nodes works, also if another one does not, or has been drained before.
func TestPartlyHollowDrain(t *testing.T) {
	for name, test := range map[string]struct {
		expected int
		change   func(c *controller)
		drained  bool // before the removal
	}{
		"one is missing": {3, func(*controller) {}, true},
		"one is down":    {2, func(c *controller) { c.nodes["c-1-h2"].base = "DOWN" }, true},
		"one is down and drained": {2, func(c *controller) {
			c.nodes["c-1-h2"].base, c.nodes["c-1-h2"].flags, c.nodes["c-1-h2"].reason = "DOWN", []string{"DRAIN"}, "bad disk"
		}, true},
		"all are down": {2, func(c *controller) { c.nodes["c-1-h1"].base, c.nodes["c-1-h2"].base = "DOWN", "DOWN" }, false},
	} {
		c, e := newHollow(t, test.expected, 1, 2)
		test.change(c)
		if err := e.Drain(t.Context(), []string{"c-1"}, engine.DrainOptions{Removal: true}, quiet); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if c.called("head: scontrol update nodename=c-1-h[1,2] state=drain reason="+drainReason) != test.drained {
			t.Errorf("%s: calls: %q", name, c.calls)
		}
	}
}
