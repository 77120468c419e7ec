package stages

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
	"github.com/nixbench/nixbench/nixeval"
)

// nodeWithGenerations returns a node with generations 1, 2, …; it runs and boots the last one.
func nodeWithGenerations(paths ...string) activate.Node {
	n := activate.Node{NixOS: true, System: "running"}
	for i, p := range paths {
		n.Generations = append(n.Generations, activate.Generation{Number: i + 1, Path: p})
		n.Generation, n.Current, n.Profile = i+1, p, p
	}
	return n
}

func inspectedNode(name string, n activate.Node, err error) fleet.Outcome[activate.Node] {
	return fleet.Outcome[activate.Node]{Node: nixeval.Node{Name: name, Unit: name}, Value: n, Err: err}
}

func recordedBefore(path string, generation int, run string, minute int) state.Node {
	return state.Node{Before: &state.Deployment{Path: path, Generation: generation, Run: run, Time: time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC)}}
}

func TestPlanRollback(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	run := &runs.Run{ID: "r1", Nodes: []state.NodeResult{
		{Node: "a", Path: "/old", Outcome: state.Switched, After: 1},
		{Node: "b", Path: "/bad", Outcome: state.RolledBack},
	}}
	tests := []struct {
		name  string
		looks []fleet.Outcome[activate.Node]
		away  []string
		known map[string]state.Node
		to    RollbackTo
		want  []string // per node
		fails bool
	}{
		{
			name:  "what ran before the last run, not the number before",
			looks: []fleet.Outcome[activate.Node]{inspectedNode("a", nodeWithGenerations("/good", "/bad", "/new"), nil)},
			known: map[string]state.Node{"a": recordedBefore("/good", 1, "r2", 1)},
			want:  []string{"generation 3 → generation 1"},
		},
		{
			name:  "what the last run left alone stays",
			looks: []fleet.Outcome[activate.Node]{inspectedNode("a", nodeWithGenerations("/old", "/new"), nil), inspectedNode("b", nodeWithGenerations("/old", "/new"), nil), inspectedNode("c", nodeWithGenerations("/x"), nil)},
			known: map[string]state.Node{"a": recordedBefore("/old", 1, "r2", 2), "b": recordedBefore("/old", 1, "r1", 1)},
			want:  []string{"generation 2 → generation 1", "stays: not changed by run r2", "stays: not changed by run r2"},
		},
		{
			name:  "the last run of the nodes that are meant",
			looks: []fleet.Outcome[activate.Node]{inspectedNode("b", nodeWithGenerations("/old", "/new"), nil)},
			known: map[string]state.Node{"a": recordedBefore("/old", 1, "r2", 2), "b": recordedBefore("/old", 1, "r1", 1)},
			want:  []string{"generation 2 → generation 1"},
		},
		{
			name:  "the node that the last run changed is away",
			looks: []fleet.Outcome[activate.Node]{inspectedNode("b", nodeWithGenerations("/old", "/new"), nil)},
			away:  []string{"a"},
			known: map[string]state.Node{"a": recordedBefore("/old", 1, "r2", 2), "b": recordedBefore("/old", 1, "r1", 1)},
			want:  []string{"stays: not changed by run r2"},
		},
		{
			name:  "a node that rolled back automatically",
			looks: []fleet.Outcome[activate.Node]{inspectedNode("a", nodeWithGenerations("/old"), nil)},
			known: map[string]state.Node{"a": recordedBefore("/old", 1, "r2", 1)},
			want:  []string{"stays: runs it already"},
		},
		{
			name:  "a number that means something else by now",
			looks: []fleet.Outcome[activate.Node]{inspectedNode("a", nodeWithGenerations("/other", "/old", "/new"), nil)},
			known: map[string]state.Node{"a": recordedBefore("/old", 1, "r2", 1)},
			want:  []string{"generation 3 → generation 2"},
		},
		{
			name:  "a system that the profile no longer has",
			looks: []fleet.Outcome[activate.Node]{inspectedNode("a", nodeWithGenerations("/new"), nil)},
			known: map[string]state.Node{"a": recordedBefore("/old", 1, "r2", 1)},
			want:  []string{"generation 1 → /old"},
		},
		{
			name:  "one node is down",
			looks: []fleet.Outcome[activate.Node]{inspectedNode("a", activate.Node{}, down), inspectedNode("b", nodeWithGenerations("/old", "/new"), nil)},
			known: map[string]state.Node{"a": recordedBefore("/old", 1, "r2", 1), "b": recordedBefore("/old", 1, "r2", 1)},
			want:  []string{"down", "generation 2 → generation 1"},
		},
		{
			name:  "a node that the last run did not change is not inspected",
			looks: []fleet.Outcome[activate.Node]{inspectedNode("a", activate.Node{}, down), inspectedNode("b", nodeWithGenerations("/old", "/new"), nil)},
			known: map[string]state.Node{"a": recordedBefore("/old", 1, "r1", 1), "b": recordedBefore("/old", 1, "r2", 2)},
			want:  []string{"stays: not changed by run r2", "generation 2 → generation 1"},
		},
		{
			name:  "nothing on record",
			looks: []fleet.Outcome[activate.Node]{inspectedNode("a", nodeWithGenerations("/old", "/new"), nil)},
			fails: true,
		},
		{
			name:  "the first deployment",
			looks: []fleet.Outcome[activate.Node]{inspectedNode("a", nodeWithGenerations("/new"), nil)},
			known: map[string]state.Node{"a": recordedBefore("", 0, "r1", 1)},
			fails: true,
		},
		{
			name:  "a generation",
			looks: []fleet.Outcome[activate.Node]{inspectedNode("a", nodeWithGenerations("/old", "/new"), nil), inspectedNode("b", nodeWithGenerations("/new"), nil)},
			to:    RollbackTo{Generation: 2},
			want:  []string{"stays: runs it already", "roll back: the node no longer has generation 2: it was removed, and perhaps garbage-collected"},
		},
		{
			name:  "what a run left",
			looks: []fleet.Outcome[activate.Node]{inspectedNode("a", nodeWithGenerations("/old", "/new"), nil), inspectedNode("b", nodeWithGenerations("/x"), nil), inspectedNode("c", nodeWithGenerations("/x"), nil)},
			to:    RollbackTo{Run: run},
			want:  []string{"generation 2 → generation 1", "stays: run r1 left no new system on it", "stays: was not part of run r1"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var nodes []nixeval.Node
			for _, o := range test.looks {
				nodes = append(nodes, o.Node)
			}
			steps, err := PlanRollback(nodes, test.away, test.known, test.to, func(asked []nixeval.Node) []fleet.Outcome[activate.Node] {
				return slices.DeleteFunc(slices.Clone(test.looks), func(o fleet.Outcome[activate.Node]) bool {
					return !slices.ContainsFunc(asked, func(n nixeval.Node) bool { return n.Name == o.Node.Name })
				})
			})
			if test.fails != (failure.KindOf(err) == failure.Usage) {
				t.Fatalf("got %v", err)
			}
			var got []string
			for _, s := range steps {
				got = append(got, s.String())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestStatusOf(t *testing.T) {
	t.Parallel()
	confirmed := state.Node{LastConfirmed: &state.Deployment{Path: "/new"}}
	booted := nodeWithGenerations("/old", "/new")
	booted.Last = &activate.Run{ID: "r", Goal: activate.Boot, To: "/new", Outcome: activate.BootDefault}
	byHand := nodeWithGenerations("/new", "/old")
	unready := nodeWithGenerations("/old")
	tests := []struct {
		name   string
		look   fleet.Outcome[activate.Node]
		known  state.Node
		wanted map[string]nixeval.Closure
		want   string
	}{
		{"as deployed", inspectedNode("a", nodeWithGenerations("/old", "/new"), nil), confirmed, nil, inspect.AsDeployed},
		{"booted since", inspectedNode("a", booted, nil), state.Node{LastConfirmed: &state.Deployment{Path: "/old"}}, nil, inspect.AsDeployed},
		{"by hand", inspectedNode("a", byHand, nil), confirmed, nil, inspect.OtherSystem},
		{"never", inspectedNode("a", unready, nil), state.Node{}, nil, inspect.NeverDeployed},
		{"down", inspectedNode("a", activate.Node{}, errors.New("down")), confirmed, nil, inspect.Unreachable},
		{"debian", inspectedNode("a", activate.Node{}, nil), state.Node{}, nil, inspect.NotNixOS},
		{"wanted", inspectedNode("a", nodeWithGenerations("/new"), nil), confirmed, map[string]nixeval.Closure{"a": {Out: "/new"}}, inspect.UpToDate},
		{"other wanted", inspectedNode("a", nodeWithGenerations("/new"), nil), confirmed, map[string]nixeval.Closure{"a": {Out: "/newer"}}, inspect.Drifted},
		{"does not evaluate", inspectedNode("a", nodeWithGenerations("/new"), nil), confirmed, map[string]nixeval.Closure{}, inspect.NotEvaluated},
	}
	for _, test := range tests {
		if got := inspect.StatusOf(test.look, test.known, test.wanted, time.Now()); got.System != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got.System, test.want)
		}
	}
}
