package plan

import (
	"errors"
	"testing"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// observe returns the observation of a deployed node that runs and boots a system; the hive's system is /new.
func observe(runs string, change func(*Observation)) Observation {
	o := Observation{
		Task: node.Task{
			Node: nixeval.Node{Name: "a"}, Closure: nixeval.Closure{Out: "/new"},
			Observed: activate.Node{NixOS: true, Current: runs, Profile: runs, Generation: 1},
		},
		Built:    true,
		Recorded: state.Node{Paths: []string{"/old", "/new"}, LastConfirmed: &state.Deployment{Path: runs}},
	}
	if change != nil {
		change(&o)
	}
	return o
}

func TestDecide(t *testing.T) {
	down := errors.New("no route to host")
	for name, c := range map[string]struct {
		observation Observation
		goal        node.Goal
		action      string
		err         bool
		drains      bool
		removes     bool
		noop        bool
	}{
		"other system":               {observation: observe("/old", nil), action: WouldSwitch, drains: true},
		"same system":                {observation: observe("/new", nil), action: WouldNothing, noop: true},
		"a switch to it was cut off": {observation: observe("/new", func(o *Observation) { o.Observed.Last = &activate.Run{ID: "killed"} }), action: WouldSwitch, drains: true},
		"booted before":              {observation: observe("/new", func(o *Observation) { o.Observed.Profile = "/old" }), action: WouldDefault, drains: true},
		"apply boot":                 {observation: observe("/old", nil), goal: node.Boot, action: WouldSwitch},
		"apply push":                 {observation: observe("/new", nil), goal: node.Push, action: WouldSwitch, noop: true},
		"first":                      {observation: observe("/old", func(o *Observation) { o.Recorded.LastConfirmed = nil }), action: WouldFirst, drains: true},
		"from elsewhere":             {observation: observe("/old", func(o *Observation) { o.Recorded.LastConfirmed, o.Observed.Deployed = nil, []string{"/old"} }), action: WouldSwitch, drains: true},
		"foreign system":             {observation: observe("/foreign", nil), action: WouldRefuse, err: true},
		"foreign, allowed":           {observation: observe("/foreign", func(o *Observation) { o.Deployment.ReplaceUnknownProfiles = true }), action: WouldSwitch, drains: true},
		"foreign, recreate":          {observation: observe("/foreign", func(o *Observation) { o.Machine = changes.Recreate }), action: WouldRefuse, err: true, removes: true},
		"not NixOS":                  {observation: observe("", func(o *Observation) { o.Observed.NixOS = false }), action: WouldRefuse, err: true},
		"unreachable":                {observation: observe("", func(o *Observation) { o.Err = down }), action: NotReachable, err: true},
		"not built":                  {observation: observe("/old", func(o *Observation) { o.Built = false }), action: NotBuilt},
		"only keys":                  {observation: observe("/old", func(o *Observation) { o.Built = false }), goal: node.UploadKeys, action: WouldSwitch, noop: true},
		"create":                     {observation: observe("", func(o *Observation) { o.Machine = changes.Create }), action: WouldFirst, drains: true},
		"start":                      {observation: observe("", func(o *Observation) { o.Machine = changes.Start }), action: NotRunning},
		"restart":                    {observation: observe("/new", func(o *Observation) { o.Machine = changes.Restart }), action: WouldNothing, drains: true},
		"recreate":                   {observation: observe("/new", func(o *Observation) { o.Machine = changes.Recreate }), action: WouldFirst, removes: true},
		"recreate, down":             {observation: observe("", func(o *Observation) { o.Machine, o.Err = changes.Recreate, down }), action: WouldFirst, removes: true},
	} {
		goal := c.goal
		if goal == "" {
			goal = node.Switch
		}
		p := DecideNode(c.observation, Options{Options: node.Options{Goal: goal}})
		if p.Action != c.action || (p.Err != nil) != c.err || (p.Drain && !p.Removes()) != c.drains || p.Removes() != c.removes || p.Noop != c.noop {
			t.Errorf("%s: %s, changes %t, drain %t, no-op %t: %v", name, p.Action, p.Changes, p.Drain, p.Noop, p.Err)
		}
	}
}

// A run that uploads no keys leaves those of the nodes as they are.
func TestDecideKeys(t *testing.T) {
	for goal, want := range map[node.Goal]bool{node.Switch: true, node.Boot: true, node.Test: true, node.UploadKeys: true, node.Push: false, node.DryActivate: false} {
		o := Options{Options: node.Options{Goal: goal}}
		if got := DecideNode(observe("/old", nil), o).Keys; got != want {
			t.Errorf("apply %s: %v", goal, got)
		}
		o.WithoutKeys = true
		if got := DecideNode(observe("/old", nil), o).Keys; got {
			t.Errorf("apply %s --no-keys: %v", goal, got)
		}
	}
}

// A system is copied before the run changes the first node, unless the node needs no copy, its machine restarts before, or nothing would
// protect the system on the node.
func TestDecideCopy(t *testing.T) {
	for name, test := range map[string]struct {
		observation Observation
		goal        node.Goal
		want        bool
	}{
		"switch":        {observe("/old", nil), node.Switch, true},
		"push":          {observe("/old", nil), node.Push, true},
		"dry-activate":  {observe("/old", nil), node.DryActivate, false},
		"unchanged":     {observe("/new", nil), node.Switch, false},
		"refused":       {observe("/foreign", nil), node.Switch, false},
		"not built":     {observe("/old", func(o *Observation) { o.Built = false }), node.UploadKeys, false},
		"restart":       {observe("/old", func(o *Observation) { o.Machine = changes.Restart }), node.Switch, false},
		"recreate":      {observe("/old", func(o *Observation) { o.Machine = changes.Recreate }), node.Switch, false},
		"booted before": {observe("/new", func(o *Observation) { o.Observed.Profile = "/old" }), node.Switch, false},
	} {
		if got := DecideNode(test.observation, Options{Options: node.Options{Goal: test.goal}}).Copy; got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
