package rollout

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/enginetest"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// A member is drained before it changes, and uncordoned also after a failed change.
func TestWithDrain(t *testing.T) {
	for name, c := range map[string]struct {
		noDrain bool
		refuse  string
		deploy  error
		want    []string
		wantErr string
	}{
		"success":          {want: []string{"drain w-1", "deploy", "wait for w-1", "uncordon w-1"}},
		"deploying failed": {deploy: errors.New("unit failed"), want: []string{"drain w-1", "deploy", "wait for w-1", "uncordon w-1"}, wantErr: "unit failed"},
		"drain failed":     {refuse: "drain", want: []string{"drain w-1"}, wantErr: "w-1: drain: the engine refuses"},
		"uncordon failed": {refuse: "wait for", want: []string{"drain w-1", "deploy", "wait for w-1"},
			wantErr: "w-1: the engine refuses"},
		"a killed run had drained it": {noDrain: true, want: []string{"deploy", "wait for w-1", "uncordon w-1"}},
	} {
		e := &enginetest.Fake{Refuse: c.refuse}
		cluster := NewCluster([]engine.Engine{e}, Observer{Store: state.ReadOnly(&state.State{})})
		cluster.Members["w-1"] = plan.Member{Engine: e, Status: engine.Status{Drained: c.noDrain}}
		err := cluster.withDrain(t.Context(), "w-1", !c.noDrain, func() error { e.Calls = append(e.Calls, "deploy"); return c.deploy })
		if diff := cmp.Diff(c.want, e.Calls); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if (err == nil) != (c.wantErr == "") || err != nil && !slices.Contains(strings.Split(err.Error(), "\n"), c.wantErr) {
			t.Errorf("%s: %v, want %q", name, err, c.wantErr)
		}
	}
}

// A member whose machine was recreated is removed, so that it can join again.
func TestRemoveStaleMember(t *testing.T) {
	e := &enginetest.Fake{}
	r := &Rollout{Cluster: NewCluster([]engine.Engine{e}, Observer{Store: state.ReadOnly(&state.State{})})}
	r.Cluster.Members["cp-1"], r.Cluster.Members["cp-2"] = plan.Member{Engine: e}, plan.Member{Engine: e, Recreated: true}
	for _, name := range []string{"cp-1", "cp-2", "w-1"} {
		n := plan.Node{Observation: plan.Observation{Task: node.Task{Node: nixeval.Node{Name: name}}}, Joins: true}
		if result := r.changeNode(t.Context(), n, nil, func(context.Context, plan.Node, func(context.Context)) Result { return Result{} }); result.Err != nil {
			t.Error(result.Err)
		}
	}
	if diff := cmp.Diff([]string{"remove cp-2"}, e.Calls); diff != "" {
		t.Error(diff)
	}
}

// Existing members are adjusted before the conditions are awaited, new ones after that.
func TestVerifyCluster(t *testing.T) {
	hive := &nixeval.Hive{Units: []nixeval.Unit{
		{Name: "w", Deployment: nixeval.Deployment{Engine: &nixeval.Engine{Kind: "sulky"}}}, {Name: "web"},
	}}
	nodes := []nixeval.Node{{Name: "w-1", Unit: "w"}, {Name: "w-2", Unit: "w"}, {Name: "w-3", Unit: "w"}, {Name: "web", Unit: "web"}}
	for name, c := range map[string]struct {
		nodes   []nixeval.Node
		refuse  string
		timeout time.Duration
		want    []string
		wantErr string
	}{
		"all of them":            {nodes, "", time.Minute, []string{"adjust w-1", "look ", "adjust w-2 w-3"}, ""},
		"only members":           {nodes[:1], "", time.Minute, []string{"adjust w-1", "look "}, ""},
		"only new ones":          {nodes[1:2], "", time.Minute, []string{"look ", "adjust w-2"}, ""},
		"none of them":           {nodes[3:], "", time.Minute, []string{"look "}, ""},
		"no check":               {nodes, "", 0, []string{"adjust w-1", "adjust w-2 w-3"}, ""},
		"the engine fails":       {nodes, "adjust", time.Minute, []string{"adjust w-1", "look ", "adjust w-1 w-2 w-3"}, "the engine refuses"},
		"no check, and it fails": {nodes, "adjust", 0, []string{"adjust w-1"}, "the engine refuses"},
	} {
		e := &enginetest.Fake{Refuse: c.refuse}
		var notes []string
		send := func(e event.Event) {
			if e.Level == "note" {
				notes = append(notes, e.Text)
			}
		}
		cluster := Cluster{reporter: reporter{send}, engines: []engine.Engine{e}, Cluster: plan.Cluster{Members: map[string]plan.Member{"w-1": {Engine: e}, "w-2": {Engine: e, Recreated: true}}}}
		err := cluster.Verify(t.Context(), hive, c.nodes, 0, nil, nil, c.timeout)
		if diff := cmp.Diff(c.want, e.Calls); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if (err == nil) != (c.wantErr == "") || err != nil && (err.Error() != c.wantErr || failure.KindOf(err) != failure.Check) {
			t.Errorf("%s: %v, want %q", name, err, c.wantErr)
		}
		if name == "all of them" && !slices.Equal(notes, []string{"w-1: label a=b, no label c", "w-2, w-3: label a=b, no label c"}) {
			t.Errorf("notes: %q", notes)
		}
	}
}

// Only nodes that are not members are admitted, and nodes whose machine was recreated.
func TestAdmitPending(t *testing.T) {
	e := &enginetest.Fake{}
	cluster := NewCluster([]engine.Engine{e}, Observer{})
	cluster.Members["cp-1"] = plan.Member{Engine: e}
	cluster.Members["cp-2"] = plan.Member{Engine: e, Recreated: true}
	var nodes []plan.Node
	for _, name := range []string{"cp-1", "cp-2", "w-1"} {
		nodes = append(nodes, plan.Node{Observation: plan.Observation{Task: node.Task{Node: nixeval.Node{Name: name}}}, Joins: true})
	}
	(&Rollout{Cluster: cluster}).admitPending(t.Context(), nodes)
	if diff := cmp.Diff([]string{"admit cp-2", "admit w-1"}, e.Calls); diff != "" {
		t.Error(diff)
	}
}

// Waves of one node: the second fails, so the third is skipped.
func TestFailedWaveSkipsRest(t *testing.T) {
	var nodes []plan.Node
	for _, name := range []string{"a", "b", "c"} {
		nodes = append(nodes, plan.Node{Observation: plan.Observation{Task: node.Task{Node: nixeval.Node{Name: name}}}, Action: plan.WouldSwitch})
	}
	var reported []string
	x := Rollout{Done: func(r Result) { reported = append(reported, r.Node.Name+" "+string(r.Outcome)) }}
	results, err := x.Execute(t.Context(), plan.Decide(nodes, nil, plan.Cluster{}, plan.Options{MaxUnavailable: selection.One}), func(_ context.Context, n plan.Node, _ func(context.Context)) Result {
		if n.Node.Name == "b" {
			return NewResult(n.Node, "", state.Failed, "", errors.New("the unit fails"))
		}
		return NewResult(n.Node, "", state.Switched, "", nil)
	})
	if err == nil || err.Error() != "the unit fails" || len(results) != 3 {
		t.Errorf("%v, %d results", err, len(results))
	}
	if diff := cmp.Diff([]string{"a switched", "b failed", "c skipped"}, reported); diff != "" {
		t.Error(diff)
	}
}
