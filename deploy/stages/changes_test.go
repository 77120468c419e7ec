package stages

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/engine/enginetest"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/packages"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/state/runs"
)

// The record of a run names the nodes whose systems it has changed, and no others.
func TestChangesOnRecord(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		goal    node.Goal
		prepare func(*world, *enginetest.Fake, *Options)
		want    string
	}{
		"switch":       {node.Switch, nil, "cp-1 w-1 w-2"},
		"boot":         {node.Boot, nil, "cp-1 w-1 w-2"},
		"dry-activate": {node.DryActivate, nil, ""},
		"push":         {node.Push, nil, ""},
		"a drain is refused": {node.Switch, func(_ *world, e *enginetest.Fake, _ *Options) {
			e.Blocked = map[string]string{"w-2": "shop/debug"}
		}, ""},
		"a drain fails": {node.Switch, func(_ *world, e *enginetest.Fake, _ *Options) { e.Undrainable = "w-2" }, "cp-1 w-1"},
		"a switch fails, and later waves are skipped": {node.Switch, func(w *world, _ *enginetest.Fake, _ *Options) {
			w.machines["w-1"].switchFails = true
		}, "cp-1"},
		"all nodes are rolled back": {node.Switch, func(w *world, _ *enginetest.Fake, o *Options) {
			w.machines["w-2"].switchFails = true
			o.RollbackAll = true
		}, ""},
	} {
		w, e := newRunningCluster(t, 1, 2)
		w.revision++
		o := Options{Options: plan.Options{Options: node.Options{Goal: test.goal, Confirm: time.Minute}}, BootTimeout: 10 * time.Second}
		var applyErr error
		w.must(w.session(t.Context(), "apply", func(d *Deployer) error {
			made, err := d.Preview(t.Context(), w.hive, w.hive.Nodes, Options{Options: plan.Options{WithoutKeys: true}})
			for i := range made.Nodes {
				made.Nodes[i].Diff = &packages.SystemDiff{Bytes: 1}
			}
			o.Plan = &made
			if test.prepare != nil {
				test.prepare(w, e, &o)
			}
			applyErr = d.Apply(t.Context(), w.hive, w.hive.Nodes, o)
			return err
		}))
		if (applyErr == nil) != (test.prepare == nil) {
			t.Errorf("%s: err = %v", name, applyErr)
		}
		list, err := runs.List(w.dir)
		if err != nil {
			t.Fatal(err)
		}
		run, err := runs.Open(w.dir, list[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		groups, err := run.Changes()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, g := range groups {
			got = append(got, g.Nodes...)
		}
		slices.Sort(got)
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: the record has changes of %q, want %q", name, got, test.want)
		}
	}
}
