package stages

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/enginetest"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// useEngine makes all nodes of the world members of an engine; the control planes are cp-….
func (w *world) useEngine(e engine.Engine) {
	w.engines = rollout.Engines{"sulky": func(engine.Cluster) engine.Engine { return e }}
	for i, u := range w.hive.Units {
		w.hive.Units[i].Deployment.Engine = &nixeval.Engine{Kind: "sulky", Role: u.Name, OneByOne: u.Name == "cp"}
	}
}

// Nodes are removed from the cluster before their machines, and the engine runs no commands on them. Before
// the first is removed, a failure uncordons all of them.
func TestRemoveDestroyedMembers(t *testing.T) {
	t.Parallel()
	part := func(name string, nodes ...string) nixeval.Unit {
		return nixeval.Unit{Name: name, Nodes: nodes, Deployment: nixeval.Deployment{Engine: &nixeval.Engine{Kind: "sulky", Role: name}}}
	}
	hive := &nixeval.Hive{Units: []nixeval.Unit{part("cp", "cp-1", "cp-2"), part("w", "w-1")}}
	for _, u := range hive.Units {
		for _, n := range u.Nodes {
			hive.Nodes = append(hive.Nodes, nixeval.Node{Name: n, Unit: u.Name})
		}
	}
	for name, c := range map[string]struct {
		refuse, wantErr string
		withoutDrain    bool
		want            []string
	}{
		"all succeed":          {"", "", false, []string{"drain for removal w-1", "drain for removal cp-2", "remove w-1", "remove cp-2"}},
		"cannot be drained":    {"drain for removal", "w-1: drain: the engine refuses", false, []string{"drain for removal w-1"}},
		"cannot be removed":    {"remove", "w-1: the engine refuses", false, []string{"drain for removal w-1", "drain for removal cp-2", "remove w-1", "uncordon cp-2", "uncordon w-1"}},
		"does not answer":      {"members", "no node can be removed from the cluster: the engine does not answer", false, nil},
		"undrained":            {"drain for removal", "", true, []string{"remove w-1", "remove cp-2"}},
		"undrained, no answer": {"members", "", true, nil},
	} {
		e := &enginetest.Fake{Refuse: c.refuse, Registered: map[string]engine.Status{"cp-1": {}, "cp-2": {}, "w-1": {}}}
		var asked []string
		d := &Deployer{Machines: &machine.Manager{Hive: hive}, Engines: rollout.Engines{"sulky": func(c engine.Cluster) engine.Engine {
			for _, m := range c.Members {
				asked = append(asked, m.Node)
			}
			return e
		}}, Changer: node.Changer{Fleet: &fleet.Fleet{}}}
		err := d.removeDestroyedMembers(t.Context(), &machine.DestroyPlan{Removals: []changes.Change{{Node: "w-1"}, {Node: "cp-2"}, {Node: "stranger"}}}, Options{Options: plan.Options{WithoutDrain: c.withoutDrain}})
		if i := slices.IndexFunc(e.Calls, func(s string) bool { return strings.HasPrefix(s, "uncordon") }); i >= 0 {
			slices.Sort(e.Calls[i:]) // they are uncordoned at the same time
		}
		if diff := cmp.Diff(c.want, e.Calls); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if (err == nil) != (c.wantErr == "") || err != nil && err.Error() != c.wantErr {
			t.Errorf("%s: %v, want %q", name, err, c.wantErr)
		}
		if !slices.Equal(asked, []string{"cp-1"}) {
			t.Errorf("%s: %q may be asked", name, asked)
		}
	}
}

// Destroying all machines of nixbench removes members from the cluster if others remain on machines of their
// own.
func TestDestroyInRunningCluster(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		deployed bool
		want     []string
	}{
		"it is a member": {true, []string{"drain for removal cp-1", "drain for removal w-1", "remove cp-1", "remove w-1"}},
		"never deployed": {false, nil},
	} {
		w, e := newRunningCluster(t, 1, 1)
		w.hive.Nodes = append(w.hive.Nodes, nixeval.Node{Name: "own", Unit: "own"})
		w.hive.Units = append(w.hive.Units, nixeval.Unit{Name: "own", Nodes: []string{"own"},
			Deployment: nixeval.Deployment{Engine: &nixeval.Engine{Kind: "sulky", Role: "cp", OneByOne: true}}})
		if c.deployed {
			w.must(w.session(t.Context(), "apply", func(d *Deployer) error {
				return d.Store.Update(func(s *state.State) error { s.Confirm("own", state.Deployment{Path: "/nix/store/own"}); return nil })
			}))
		}
		if err := w.destroy(nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, e.MemberCalls(), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// With every goal, members are removed from the cluster before their machines. If the engine does not answer,
// no machine is removed.
func TestScaleDown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		goal         node.Goal
		silent       bool
		withoutDrain bool
		want         []string
		gone         bool
	}{
		"switch":               {node.Switch, false, false, []string{"drain for removal cp-2", "drain for removal cp-3", "remove cp-2", "remove cp-3"}, true},
		"boot":                 {node.Boot, false, false, []string{"drain for removal cp-2", "drain for removal cp-3", "remove cp-2", "remove cp-3"}, true},
		"undrained":            {node.Switch, false, true, []string{"remove cp-2", "remove cp-3"}, true},
		"switch, no answer":    {node.Switch, true, false, nil, false},
		"boot, no answer":      {node.Boot, true, false, nil, false},
		"undrained, no answer": {node.Switch, true, true, nil, true},
	} {
		w := newWorld(t, map[string]int{"cp": 3})
		e := &enginetest.Fake{}
		w.useEngine(e)
		w.must(w.apply())
		e.Registered = map[string]engine.Status{"cp-1": {OneByOne: true}, "cp-2": {OneByOne: true}, "cp-3": {OneByOne: true}}
		e.Calls = nil
		if c.silent {
			e.Refuse = "members"
		}
		w.scale(map[string]int{"cp": 1})
		w.useEngine(e)
		_, err := w.apply(func(o *Options) { o.Goal, o.WithoutDrain = c.goal, c.withoutDrain })
		if (failure.KindOf(err) == failure.Cluster) == c.gone || c.gone && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		calls := slices.DeleteFunc(e.MemberCalls(), func(s string) bool { return strings.HasPrefix(s, "admit") })
		if diff := cmp.Diff(c.want, calls, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if (w.h.Boot("demo-cp-3") == 0) != c.gone {
			t.Errorf("%s: machines: %q", name, w.h.Objects())
		}
	}
}

// Nodes that are removed are drained before the configuration of another node changes, and removed at the end. If the
// drain or a change fails, they stay members that accept work.
func TestRemovedNodesAreDrainedFirst(t *testing.T) {
	t.Parallel()
	drained := []string{"drain for removal w-2", "drain for removal w-3"}
	for name, c := range map[string]struct {
		prepare func(*world, *enginetest.Fake)
		options func(*Options)
		want    []string
		changed string // the nodes whose systems have changed
		wantErr string
	}{
		"success": {
			want:    append(slices.Clone(drained), "drain cp-1", "wait for cp-1", "uncordon cp-1", "drain w-1", "wait for w-1", "uncordon w-1", "remove w-2", "remove w-3"),
			changed: "cp-1 w-1",
		},
		"one is not drained": {
			prepare: func(_ *world, e *enginetest.Fake) { e.Undrainable = "w-3" },
			want:    drained, wantErr: "w-3: drain: its work does not end",
		},
		"a drain would be refused": {
			prepare: func(_ *world, e *enginetest.Fake) { e.Blocked = map[string]string{"w-3": "shop/debug"} },
			wantErr: "w-3: drain: shop/debug is bare",
		},
		"a change fails": {
			prepare: func(w *world, _ *enginetest.Fake) { w.machines["w-1"].switchFails = true },
			want:    append(slices.Clone(drained), "drain cp-1", "wait for cp-1", "uncordon cp-1", "drain w-1", "wait for w-1", "uncordon w-1", "uncordon w-2", "uncordon w-3"),
			changed: "cp-1", wantErr: "w-1",
		},
		"without a drain": {
			options: func(o *Options) { o.WithoutDrain = true },
			want:    []string{"remove w-2", "remove w-3"},
			changed: "cp-1 w-1",
		},
		"boot": { // the configuration of no running controller changes
			options: func(o *Options) { o.Goal = node.Boot },
			want:    append(slices.Clone(drained), "remove w-2", "remove w-3"),
		},
	} {
		w, e := newRunningCluster(t, 1, 3)
		before := map[string]string{}
		for node, m := range w.machines {
			before[node] = m.current
		}
		w.scale(map[string]int{"cp": 1, "w": 1})
		w.useEngine(e)
		w.revision++
		if c.prepare != nil {
			c.prepare(w, e)
		}
		options := func(*Options) {}
		if c.options != nil {
			options = c.options
		}
		_, err := w.apply(options)
		if (err == nil) != (c.wantErr == "") || err != nil && !strings.Contains(err.Error(), c.wantErr) {
			t.Errorf("%s: %v, want %q", name, err, c.wantErr)
		}
		calls := e.MemberCalls()
		if i := slices.Index(calls, "uncordon w-3"); i >= 0 {
			slices.Sort(calls[len(calls)-2:]) // they are uncordoned at the same time
		}
		if diff := cmp.Diff(c.want, calls, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		var changed []string
		for _, node := range slices.Sorted(maps.Keys(w.machines)) {
			if w.machines[node].current != before[node] {
				changed = append(changed, node)
			}
			if m, isMember := e.Registered[node]; isMember && m.Drained {
				t.Errorf("%s: %s stays drained", name, node)
			}
		}
		if got := strings.Join(changed, " "); got != c.changed {
			t.Errorf("%s: changed %q, want %q", name, got, c.changed)
		}
		if kept := w.h.Boot("demo-w-3") != 0; kept != (c.wantErr != "") {
			t.Errorf("%s: whether the machine of w-3 is kept: %t", name, kept)
		}
	}
}
