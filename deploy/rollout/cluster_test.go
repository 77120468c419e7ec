package rollout

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/enginetest"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/nixeval"
)

// changing is a node that is to be changed.
type changing struct {
	node      nixeval.Node
	unchanged bool
}

func changes(names ...string) []changing {
	var out []changing
	for _, name := range names {
		name, same := strings.CutPrefix(name, "=")
		out = append(out, changing{nixeval.Node{Name: name}, same})
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

func TestOrderWaves(t *testing.T) {
	e := &enginetest.Fake{}
	running := Cluster{members: map[string]member{
		"cp-1": {engine: e, Status: engine.Status{OneByOne: true}}, "cp-2": {engine: e, Status: engine.Status{OneByOne: true}},
		"cp-3": {engine: e, Status: engine.Status{OneByOne: true}, recreated: true},
		"w-1":  {engine: e}, "w-2": {engine: e}, "w-3": {engine: e},
	}, desired: desiredMembers(0, "cp-1", "cp-2", "cp-3", "w-1", "w-2", "w-3", "w-4", "w-5")}
	empty := running
	empty.members = nil
	two, _ := selection.ParseShare("2")
	for name, c := range map[string]struct {
		l         bool
		todo      []changing
		share     selection.Share
		activates bool
		want      string
	}{
		"first creation":          {false, changes("cp-1", "w-1", "w-2"), selection.Share{}, true, "cp-1 w-1 w-2"},
		"no cluster, in waves":    {false, changes("a", "=b", "c", "d"), two, true, "b a c | d"},
		"running cluster":         {true, changes("cp-1", "cp-2", "w-1", "w-2", "w-3"), selection.Share{}, true, " | cp-1 | cp-2 | w-1 | w-2 | w-3"},
		"running, two at a time":  {true, changes("cp-1", "w-1", "w-2", "w-3"), two, true, " | cp-1 | w-1 w-2 | w-3"},
		"new nodes wait for none": {true, changes("w-1", "w-4", "w-5"), selection.Share{}, true, "w-4 w-5 | w-1"},
		"unchanged wait for none": {true, changes("=cp-1", "=w-1", "w-2"), selection.Share{}, true, "cp-1 w-1 | w-2"},
		"nothing is activated":    {true, changes("cp-1", "w-1"), selection.Share{}, false, "cp-1 w-1"},
		"new nodes in one wave":   {true, changes("w-1", "w-4", "w-5"), selection.One, true, "w-4 w-5 | w-1"},
		"no engine, no limit":     {true, changes("web-1", "w-1", "web-2"), selection.Share{}, true, "web-1 web-2 | w-1"},
		"no engine, one per wave": {true, changes("web-1", "cp-1", "web-2"), selection.One, true, " | cp-1 | web-1 | web-2"},
		"recreated machine":       {true, changes("cp-2", "cp-3", "w-1"), selection.Share{}, true, "cp-3 | cp-2 | w-1"},
		"nothing to do":           {false, nil, selection.Share{}, true, ""},
	} {
		cluster := empty
		if c.l {
			cluster = running
		}
		var nodes []nixeval.Node
		same := map[string]bool{}
		for _, t := range c.todo {
			nodes = append(nodes, t.node)
			same[t.node.Name] = t.unchanged
		}
		waves := cluster.OrderWaves(nodes, func(n string) bool { return same[n] || !c.activates }, c.share)
		if got := formatWaves(waves); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Members with a lower order change first: a database before the controllers, and these before the other nodes.
func TestOrderOfRoles(t *testing.T) {
	e := &enginetest.Fake{}
	one := engine.Status{OneByOne: true}
	cluster := Cluster{members: map[string]member{
		"w-1": {engine: e}, "w-2": {engine: e}, "ctl-1": {engine: e, Status: one}, "ctl-2": {engine: e, Status: one}, "db-1": {engine: e}, "db-2": {engine: e},
	}, desired: map[string]engine.Member{}}
	maps.Copy(cluster.desired, desiredMembers(20, "w-1", "w-2", "w-3"))
	maps.Copy(cluster.desired, desiredMembers(10, "ctl-1", "ctl-2"))
	maps.Copy(cluster.desired, desiredMembers(0, "db-1", "db-2"))
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
		var nodes []nixeval.Node
		for _, n := range strings.Fields(c.nodes) {
			nodes = append(nodes, nixeval.Node{Name: n})
		}
		if got := formatWaves(cluster.OrderWaves(nodes, func(string) bool { return false }, c.share)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// formatWaves formats waves, as "w-1 w-2 | w-3".
func formatWaves(waves [][]nixeval.Node) string {
	var out []string
	for _, wave := range waves {
		var names []string
		for _, n := range wave {
			names = append(names, n.Name)
		}
		out = append(out, strings.Join(names, " "))
	}
	return strings.Join(out, " | ")
}

// A member is drained before it changes, and uncordoned also after a failed change.
func TestWithDrain(t *testing.T) {
	for name, c := range map[string]struct {
		task    changing
		refuse  string
		deploy  error
		want    []string
		wantErr string
	}{
		"success":          {task: changes("w-1")[0], want: []string{"drain w-1", "deploy", "wait for w-1", "uncordon w-1"}},
		"deploying failed": {task: changes("w-1")[0], deploy: errors.New("unit failed"), want: []string{"drain w-1", "deploy", "wait for w-1", "uncordon w-1"}, wantErr: "unit failed"},
		"drain failed":     {task: changes("w-1")[0], refuse: "drain", want: []string{"drain w-1"}, wantErr: "w-1: drain: the engine refuses"},
		"uncordon failed": {task: changes("w-1")[0], refuse: "wait for", want: []string{"drain w-1", "deploy", "wait for w-1"},
			wantErr: "w-1: the engine refuses"},
		"a killed run had drained it": {task: changes("=w-1")[0], want: []string{"deploy", "wait for w-1", "uncordon w-1"}},
	} {
		e := &enginetest.Fake{Refuse: c.refuse}
		cluster := Cluster{members: map[string]member{"w-1": {engine: e, Status: engine.Status{Drained: c.task.unchanged}}}}
		err := cluster.WithDrain(t.Context(), "w-1", c.task.unchanged, func() error { e.Calls = append(e.Calls, "deploy"); return c.deploy })
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
	cluster := Cluster{engines: []engine.Engine{e}, members: map[string]member{"cp-1": {engine: e}, "cp-2": {engine: e, recreated: true}}}
	for _, name := range []string{"cp-1", "cp-2", "w-1"} {
		if err := cluster.RemoveStaleMember(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff([]string{"remove cp-2"}, e.Calls); diff != "" {
		t.Error(diff)
	}
}

// Existing members are adjusted before the conditions are awaited, new ones after that.
// certified is an engine whose members have certificates.
type certified struct {
	*enginetest.Fake
	ends time.Time
}

func (c certified) Certificates(context.Context, string) ([]engine.Certificate, error) {
	return []engine.Certificate{{Ends: c.ends}, {Ends: c.ends.AddDate(-1, 0, 0)}}, nil
}

// A removal reports until when copies of the member's certificates are valid.
func TestRemoveMembersWithCertificates(t *testing.T) {
	fake := &enginetest.Fake{Registered: map[string]engine.Status{"w-1": {Ready: true}, "w-2": {}}}
	for e, want := range map[engine.Engine][]string{
		certified{fake, time.Date(2030, 5, 1, 0, 0, 0, 0, time.UTC)}: {"w-1: removed; copies of its certificates cannot be revoked, and are valid until 2030-05-01", "w-2: removed; copies of its certificates cannot be revoked, and are valid until they expire"},
		&enginetest.Fake{Registered: maps.Clone(fake.Registered)}:    nil,
	} {
		var got []string
		send := func(e event.Event) {
			if e.Kind == event.Message {
				got = append(got, e.Node+": "+e.Text)
			}
		}
		if err := RemoveMembers(t.Context(), []engine.Engine{e}, []string{"w-1", "w-2"}, true, engine.DrainOptions{}, send); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

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
		cluster := Cluster{reporter: reporter{send}, engines: []engine.Engine{e}, members: map[string]member{"w-1": {engine: e}, "w-2": {engine: e, recreated: true}}}
		err := cluster.Verify(t.Context(), hive, c.nodes, 0, nil, c.timeout)
		if diff := cmp.Diff(c.want, e.Calls); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		var adjust *AdjustError
		if (err == nil) != (c.wantErr == "") || err != nil && (err.Error() != c.wantErr || !errors.As(err, &adjust)) {
			t.Errorf("%s: %v, want %q", name, err, c.wantErr)
		}
		if name == "all of them" && !slices.Equal(notes, []string{"w-1: label a=b, no label c", "w-2, w-3: label a=b, no label c"}) {
			t.Errorf("notes: %q", notes)
		}
	}
}
