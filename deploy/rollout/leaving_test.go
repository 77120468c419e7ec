package rollout

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// A node's own report counts before the state, and the state only for a node with a confirmed deployment.
func TestRunningEngine(t *testing.T) {
	confirmed := &state.Deployment{Path: "/nix/store/a"}
	for name, c := range map[string]struct {
		report   activate.Node
		recorded state.Node
		want     string
	}{
		"both":                  {activate.Node{Engine: "slurm"}, state.Node{Engine: "kubernetes", LastConfirmed: confirmed}, "slurm"},
		"only the report":       {activate.Node{Engine: "slurm"}, state.Node{}, "slurm"},
		"only the state":        {activate.Node{Deployed: []string{"/nix/store/a"}}, state.Node{Engine: "slurm", LastConfirmed: confirmed}, "slurm"},
		"a recreated machine":   {activate.Node{}, state.Node{Engine: "slurm"}, ""},
		"an old state, no file": {activate.Node{Deployed: []string{"/nix/store/a"}}, state.Node{LastConfirmed: confirmed}, ""},
	} {
		if got := runningEngine(c.report, c.recorded); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The client of an engine that is not in the hive gets the nodes that run it, with their recorded roles and settings.
func TestRecordedMembers(t *testing.T) {
	in := func(role string, kinds ...string) state.Node {
		n := state.Node{Memberships: map[string]state.Membership{}}
		for _, kind := range kinds {
			n.Memberships[kind] = state.Membership{Role: role, HiveRole: "hive-" + role, Order: 7}
		}
		return n
	}
	hive := &nixeval.Hive{Nodes: []nixeval.Node{{Name: "w-2"}, {Name: "w-1"}, {Name: "new"}, {Name: "moved"}}}
	recorded := &state.State{Nodes: map[string]state.Node{
		"w-1": in("compute", "slurm", "flux"), "w-2": in("controller", "slurm"), "gone": in("compute", "slurm"), "moved": in("compute", "slurm"),
	}}
	running := map[string]string{"w-1": "slurm", "w-2": "slurm", "gone": "slurm", "new": "slurm", "moved": "flux"}
	member := func(node, role string) engine.Member {
		return engine.Member{Node: node, HiveRole: "hive-" + role, Engine: nixeval.Engine{Kind: "slurm", Role: role, Order: 7}}
	}
	want := []engine.Member{member("w-2", "controller"), member("w-1", "compute"), member("gone", "compute")}
	if diff := cmp.Diff(want, recordedMembers(hive, recorded, "slurm", func(node string) string { return running[node] })); diff != "" {
		t.Error(diff)
	}
}
