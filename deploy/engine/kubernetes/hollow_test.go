package kubernetes

import (
	"fmt"
	"testing"
)

// newHollowNodes returns a cluster with two workers, of which w-1 stands for hollow nodes, the last of which is not Ready.
func newHollowNodes(t *testing.T, registered int) (*cluster, *Engine) {
	t.Helper()
	c := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true), "w-1": node(true), "w-2": node(true)}, bound: map[string][]object{}}
	c.nodes["w-1"]["labels"] = object{HollowLabel + "-machine": "true"}
	for i := range registered {
		n := node(true)
		n["labels"] = object{HollowLabel: "w-1"}
		c.nodes[fmt.Sprintf("w-1-h%d", i+1)] = n
	}
	e := c.engine("cp-1", "w-1", "w-2")
	e.Cluster.Members[1].Settings = []byte(`{"hollow": 2}`)
	return c, e
}

// Hollow nodes are no members, and a check counts them.
func TestHollowNodes(t *testing.T) {
	for name, test := range map[string]struct {
		registered int
		change     func(c *cluster, e *Engine)
		want       string
	}{
		"well":      {2, func(*cluster, *Engine) {}, ""},
		"missing":   {1, func(*cluster, *Engine) {}, "w-1: 1 hollow nodes are Ready, want 2"},
		"surplus":   {3, func(*cluster, *Engine) {}, "w-1: 3 hollow nodes are Ready, want 2"},
		"not ready": {2, func(c *cluster, _ *Engine) { c.nodes["w-1-h2"]["ready"] = false }, "w-1: 1 hollow nodes are Ready, want 2"},
		"of another": {2, func(c *cluster, _ *Engine) {
			c.nodes["w-2-h1"] = node(true)
			c.nodes["w-2-h1"]["labels"] = object{HollowLabel: "w-2"}
		}, "w-2: 1 hollow nodes are Ready, want 0"},
	} {
		c, e := newHollowNodes(t, test.registered)
		test.change(c, e)
		members, err := e.Members(t.Context())
		if err != nil || len(members) != 3 {
			t.Errorf("%s: members %v, %v", name, members, err)
		}
		got := ""
		if err := e.checkNodesReady(t.Context(), nil); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// The hollow nodes of a machine are removed with it.
func TestRemoveHollowNodes(t *testing.T) {
	c, e := newHollowNodes(t, 2)
	c.etcd = etcdOfTwo
	if err := e.RemoveMember(t.Context(), "w-1"); err != nil {
		t.Fatal(err)
	}
	if len(c.nodes) != 2 {
		t.Errorf("still registered: %v", c.nodes)
	}
}
