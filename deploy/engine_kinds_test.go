package deploy

import (
	"slices"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/kubernetes"
	"github.com/nixbench/nixbench/deploy/engine/slurm"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// hiveOf returns a hive with one node of each kind, which has the name of the kind.
func hiveOf(role string, kinds ...engine.Kind) *nixeval.Hive {
	hive := &nixeval.Hive{}
	for _, k := range kinds {
		hive.Nodes = append(hive.Nodes, nixeval.Node{Name: k.Name, Unit: k.Name})
		hive.Units = append(hive.Units, nixeval.Unit{Name: k.Name, Nodes: []string{k.Name}, Deployment: nixeval.Deployment{Engine: &nixeval.Engine{Kind: k.Name, Role: role}}})
	}
	return hive
}

// Every engine has what the rest of nixbench needs, and help whose lines fit a terminal.
func TestEngineTable(t *testing.T) {
	var names []string
	for _, k := range EngineKinds() {
		if k.Name == "" || k.Title == "" || k.New == nil || slices.Contains(names, k.Name) {
			t.Errorf("incomplete or listed twice: %+v", k)
		}
		names = append(names, k.Name)
		for _, text := range []string{k.Help.Check, k.Help.Drain, k.Help.Remove, k.Help.Rotate} {
			if text != "" && !strings.HasPrefix(text, k.Title+": ") {
				t.Errorf("%s: the help does not begin with the title: %s", k.Name, text)
			}
			for line := range strings.SplitSeq(text, "\n") {
				if len(line) > 80 {
					t.Errorf("%s: a line of %d characters: %s", k.Name, len(line), line)
				}
			}
		}
	}
	if engines := newEngines(""); len(engines) != len(names) {
		t.Errorf("%d constructors of %d engines", len(engines), len(names))
	}
}

func TestDefaultAPIPort(t *testing.T) {
	for _, test := range []struct {
		kinds []engine.Kind
		want  int
	}{{nil, 0}, {[]engine.Kind{slurm.Kind}, 0}, {[]engine.Kind{slurm.Kind, kubernetes.Kind}, 6443}} {
		if got := defaultAPIPort(hiveOf("", test.kinds...)); got != test.want {
			t.Errorf("%d, want %d", got, test.want)
		}
	}
}

// After the first deployment of a cluster, and after a change of the scheduler, nixbench shows how to use the cluster, and
// not after others.
func TestDescribeNewClusters(t *testing.T) {
	hive := hiveOf(slurm.Controller, kubernetes.Kind, slurm.Kind)
	before := &state.State{Nodes: map[string]state.Node{}}
	if got := describeNewClusters(hive, before); len(got) != 2 || !strings.Contains(got[0], "nixbench kubectl get nodes") || !strings.Contains(got[1], "nixbench exec --on slurm -- sinfo") {
		t.Errorf("%q", got)
	}
	before.Nodes["slurm"] = state.Node{Engine: "slurm", LastConfirmed: &state.Deployment{}}
	if got := describeNewClusters(hive, before); len(got) != 1 || !strings.Contains(got[0], "kubectl") {
		t.Errorf("SLURM exists: %q", got)
	}
	for name, test := range map[string]struct {
		before state.Node
		want   int
	}{
		"another scheduler before": {state.Node{Engine: "kubernetes", Memberships: map[string]state.Membership{"kubernetes": {}}}, 1},
		"back to SLURM":            {state.Node{Engine: "kubernetes", Memberships: map[string]state.Membership{"kubernetes": {}, "slurm": {}}}, 1},
		"none in between":          {state.Node{Memberships: map[string]state.Membership{"slurm": {}}}, 1},
		"SLURM before":             {state.Node{Engine: "slurm", Memberships: map[string]state.Membership{"slurm": {}}}, 0},
	} {
		test.before.LastConfirmed = &state.Deployment{}
		before := &state.State{Nodes: map[string]state.Node{"slurm": test.before}}
		if got := describeNewClusters(hiveOf(slurm.Controller, slurm.Kind), before); len(got) != test.want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := describeNewClusters(hiveOf(slurm.Compute, slurm.Kind), &state.State{}); got != nil {
		t.Errorf("without a controller: %q", got)
	}
}
