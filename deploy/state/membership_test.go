package state

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/nixeval"
)

// A node keeps the memberships in all engines that it has run. A new deployment does not clear the mark of a drain.
func TestMemberships(t *testing.T) {
	d := folder(t)
	s := openStore(t, d)
	slurm := nixeval.Engine{Kind: "slurm", Role: "compute", Order: 20, Settings: json.RawMessage(`{"drainTimeout":300}`)}
	update := func(f func(*State)) {
		t.Helper()
		if err := s.Update(func(s *State) error { f(s); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	first := s.State()
	update(func(s *State) {
		s.Confirm("w-1", Deployment{Path: "/a"})
		s.RecordMembership("w-1", "slurm", *NewMembership("worker", &slurm))
		s.RecordEngine("w-1", "slurm")
	})
	update(func(s *State) { s.RecordDrained("w-1", "slurm", true); s.RecordDrained("w-1", "unknown", true) })
	before := s.State()
	update(func(s *State) {
		s.RecordMembership("w-1", "flux", Membership{Role: "broker"})
		s.RecordEngine("w-1", "flux")
		s.RecordMembership("w-1", "slurm", *NewMembership("worker", &slurm))
	})
	if len(first.Nodes) != 0 || len(before.Nodes["w-1"].Memberships) != 1 || before.Nodes["w-1"].Engine != "slurm" {
		t.Errorf("an earlier state has changed: %+v, %+v", first, before)
	}
	loaded, err := d.Load()
	if err != nil {
		t.Fatal(err)
	}
	n := loaded.Nodes["w-1"]
	if !n.Memberships["slurm"].Drained || n.Engine != "flux" || len(n.Memberships) != 2 {
		t.Errorf("%+v", n)
	}
	got := n.Memberships["slurm"].Engine("slurm")
	if diff := cmp.Diff(slurm, got); diff != "" {
		t.Error(diff)
	}
	if NewMembership("worker", nil) != nil {
		t.Error("a node without an engine has a membership")
	}
	for name, c := range map[string]struct {
		kind string
		m    *Membership
		want bool
	}{
		"the same":      {"flux", &Membership{Role: "broker"}, true},
		"another role":  {"flux", &Membership{Role: "leader"}, false},
		"settings":      {"slurm", NewMembership("worker", &slurm), true},
		"another kind":  {"kubernetes", NewMembership("worker", &slurm), false},
		"no membership": {"", nil, true},
	} {
		if got := n.HasMembership(c.kind, c.m); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
