package plan

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/nixeval"
)

// changing returns the plans of nodes that change, and of nodes that do not, whose names begin with =.
func changing(names ...string) []Node {
	var out []Node
	for _, name := range names {
		name, same := strings.CutPrefix(name, "=")
		out = append(out, Node{Observation: Observation{Task: node.Task{Node: nixeval.Node{Name: name}}}, Action: WouldSwitch, Noop: same})
	}
	return out
}

// desiredMembers returns the members of a hive, which have the same order.
func desiredMembers(order int, nodes ...string) map[string]engine.Member {
	out := map[string]engine.Member{}
	for _, n := range nodes {
		out[n] = engine.Member{Node: n, Engine: nixeval.Engine{Order: order}}
	}
	return out
}

func TestDecideWaves(t *testing.T) {
	one := engine.Status{OneByOne: true}
	running := Cluster{Members: map[string]Member{
		"cp-1": {Status: one}, "cp-2": {Status: one}, "cp-3": {Status: one, Recreated: true}, "w-1": {}, "w-2": {}, "w-3": {},
	}, Desired: desiredMembers(0, "cp-1", "cp-2", "cp-3", "w-1", "w-2", "w-3", "w-4", "w-5")}
	empty := running
	empty.Members = nil
	two, _ := selection.ParseShare("2")
	for name, c := range map[string]struct {
		l         bool
		todo      []Node
		share     selection.Share
		activates bool
		want      string
	}{
		"first creation":          {false, changing("cp-1", "w-1", "w-2"), selection.Share{}, true, "cp-1 w-1 w-2"},
		"no cluster, in waves":    {false, changing("a", "=b", "c", "d"), two, true, "b a c | d"},
		"running cluster":         {true, changing("cp-1", "cp-2", "w-1", "w-2", "w-3"), selection.Share{}, true, " | cp-1 | cp-2 | w-1 | w-2 | w-3"},
		"running, two at a time":  {true, changing("cp-1", "w-1", "w-2", "w-3"), two, true, " | cp-1 | w-1 w-2 | w-3"},
		"new nodes wait for none": {true, changing("w-1", "w-4", "w-5"), selection.Share{}, true, "w-4 w-5 | w-1"},
		"unchanged wait for none": {true, changing("=cp-1", "=w-1", "w-2"), selection.Share{}, true, "cp-1 w-1 | w-2"},
		"nothing is activated":    {true, changing("cp-1", "w-1"), selection.Share{}, false, "cp-1 w-1"},
		"new nodes in one wave":   {true, changing("w-1", "w-4", "w-5"), selection.One, true, "w-4 w-5 | w-1"},
		"no engine, no limit":     {true, changing("web-1", "w-1", "web-2"), selection.Share{}, true, "web-1 web-2 | w-1"},
		"no engine, one per wave": {true, changing("web-1", "cp-1", "web-2"), selection.One, true, " | cp-1 | web-1 | web-2"},
		"recreated machine":       {true, changing("cp-2", "cp-3", "w-1"), selection.Share{}, true, "cp-3 | cp-2 | w-1"},
		"nothing to do":           {false, nil, selection.Share{}, true, ""},
	} {
		cluster := empty
		if c.l {
			cluster = running
		}
		for i := range c.todo {
			c.todo[i].Noop = c.todo[i].Noop || !c.activates
		}
		if got := formatWaves(Decide(c.todo, nil, cluster, Options{MaxUnavailable: c.share}).Waves); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Members with a lower order change first: a database before the controllers, and these before the other nodes.
func TestOrderOfRoles(t *testing.T) {
	one := engine.Status{OneByOne: true}
	cluster := Cluster{Members: map[string]Member{"w-1": {}, "w-2": {}, "ctl-1": {Status: one}, "ctl-2": {Status: one}, "db-1": {}, "db-2": {}}, Desired: map[string]engine.Member{}}
	maps.Copy(cluster.Desired, desiredMembers(20, "w-1", "w-2", "w-3"))
	maps.Copy(cluster.Desired, desiredMembers(10, "ctl-1", "ctl-2"))
	maps.Copy(cluster.Desired, desiredMembers(0, "db-1", "db-2"))
	two, _ := selection.ParseShare("2")
	for name, c := range map[string]struct {
		nodes string
		share selection.Share
		want  string
	}{
		"one at a time":      {"w-1 ctl-1 db-1", selection.Share{}, " | db-1 | ctl-1 | w-1"},
		"two at a time":      {"w-1 w-2 ctl-2 ctl-1 db-1 db-2", two, " | db-1 db-2 | ctl-2 | ctl-1 | w-1 w-2"},
		"a new node":         {"w-1 w-3 db-1", selection.Share{}, "w-3 | db-1 | w-1"},
		"without an engine":  {"web-1 w-1 ctl-1", selection.One, " | ctl-1 | web-1 | w-1"},
		"without the last":   {"web-1 ctl-1 db-1", selection.One, " | db-1 | ctl-1 | web-1"},
		"only one order":     {"w-2 w-1", selection.Share{}, " | w-2 | w-1"},
		"none":               {"", selection.Share{}, ""},
		"all without engine": {"web-1 web-2", selection.Share{}, "web-1 web-2"},
	} {
		if got := formatWaves(Decide(changing(strings.Fields(c.nodes)...), nil, cluster, Options{MaxUnavailable: c.share}).Waves); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// formatWaves formats waves, as "w-1 w-2 | w-3".
func formatWaves(waves [][]Node) string {
	var out []string
	for _, wave := range waves {
		var names []string
		for _, n := range wave {
			names = append(names, n.Node.Name)
		}
		out = append(out, strings.Join(names, " "))
	}
	return strings.Join(out, " | ")
}

// Each drain of the run is in the plan, unless the run drains no nodes.
func TestDecideDrains(t *testing.T) {
	o := Options{Options: node.Options{Goal: node.Switch}}
	decide := func(o Options) Drains {
		return Decide([]Node{
			DecideNode(observe("/old", nil), o),
			DecideNode(observe("/new", func(o *Observation) { o.Node.Name = "same" }), o),
			DecideNode(observe("/foreign", func(o *Observation) { o.Node.Name = "refused" }), o),
			DecideNode(observe("/new", func(o *Observation) { o.Node.Name, o.Machine = "again", changes.Recreate }), o),
		}, []string{"gone"}, Cluster{}, o).Drains
	}
	want := Drains{Change: []string{"a"}, Remove: []string{"again", "gone"}, Obsolete: []string{"gone"}}
	if diff := cmp.Diff(want, decide(o)); diff != "" {
		t.Error(diff)
	}
	o.WithoutDrain = true
	if diff := cmp.Diff(Drains{}, decide(o)); diff != "" {
		t.Error(diff)
	}
}
