package selection

import (
	"strings"
	"testing"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
	"github.com/nixbench/nixbench/nixeval/nixlog"
)

var hive = &nixeval.Hive{
	Roles: map[string]nixeval.Role{"worker": {}, "idle": {}},
	Nodes: []nixeval.Node{
		{Name: "db", Unit: "db", Tags: []string{"data", "front"}},
		{Name: "web-1", Unit: "web-1", Tags: []string{"front"}},
		{Name: "web-2.example.org", Unit: "web-2.example.org", Tags: []string{"front/blue"}},
		{Name: "worker-1", Unit: "worker", Role: "worker", Tags: []string{"compute"}},
		{Name: "worker-2", Unit: "worker", Role: "worker", Tags: []string{"compute"}},
		{Name: "worker-10", Unit: "worker", Role: "worker", Tags: []string{"compute"}},
	},
}

func TestSelect(t *testing.T) {
	for _, tc := range []struct {
		on   []string
		want string // names, or with "!" a part of the error
	}{
		{nil, "db web-1 web-2.example.org worker-1 worker-2 worker-10"},
		{[]string{"db"}, "db"},
		{[]string{"worker-1,db"}, "db worker-1"}, // the hive's order, not the user's
		{[]string{"web-*"}, "web-1 web-2.example.org"},
		{[]string{"web-?"}, "web-1"},
		{[]string{"worker-[12]"}, "worker-1 worker-2"},
		{[]string{"worker-[!1]"}, "worker-2"},
		{[]string{"worker-[^1]"}, "worker-2"},
		{[]string{"@front"}, "db web-1"},
		{[]string{"@front*"}, "db web-1 web-2.example.org"},
		{[]string{"@worker"}, "worker-1 worker-2 worker-10"},
		{[]string{"@work*,!worker-2"}, "worker-1 worker-10"},
		{[]string{"!@worker"}, "db web-1 web-2.example.org"},
		{[]string{"!worker-2,@worker"}, "worker-1 worker-10"}, // order does not matter
		{[]string{" @front , !db "}, "web-1"},
		{[]string{"db", "web-1"}, "db web-1"},
		{[]string{"@worker,@idle"}, "worker-1 worker-2 worker-10"},
		{[]string{"db,db"}, "db"},
		{[]string{"!nope-*"}, "db web-1 web-2.example.org worker-1 worker-2 worker-10"},

		{[]string{"wokrer-1"}, "!no such node; the hive has db, web-1"},
		{[]string{"db,wokrer-1"}, "!no such node"},
		{[]string{"!wokrer-1"}, "!no such node"},
		{[]string{"@nope"}, "!no such tag or role"},
		{[]string{"@idle"}, "!no node is selected"},
		{[]string{"zzz*"}, "!no node is selected; the hive has db"},
		{[]string{"db,!db"}, "!no node is selected"},
		{[]string{"!*"}, "!no node is selected"},
		{[]string{""}, "!empty term"},
		{[]string{"a,,b"}, "!empty term"},
		{[]string{"@"}, "!empty term"},
		{[]string{"!"}, "!empty term"},
		{[]string{"a["}, "!not a valid glob"},
	} {
		s, err := ParseSelector(tc.on)
		var nodes []nixeval.Node
		if err == nil {
			nodes, err = s.Select(hive)
		}
		var got []string
		for _, n := range nodes {
			got = append(got, n.Name)
		}
		if want, fails := strings.CutPrefix(tc.want, "!"); fails {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, error %v; want %q in it", tc.on, got, err, want)
			}
		} else if err != nil || strings.Join(got, " ") != tc.want {
			t.Errorf("%q: %v, error %v; want %s", tc.on, got, err, tc.want)
		}
	}
}

func TestPathGlob(t *testing.T) {
	for glob, want := range map[string]string{
		"web-[!1]":  "web-[^1]",
		"[!a][!b]*": "[^a][^b]*",
		`\[!a`:      `\[!a`,
		"[a[!]":     "[a[!]",
		`[!\][!]x`:  `[^\][!]x`,
	} {
		if got := toPathGlob(glob); got != want {
			t.Errorf("%s: %s, want %s", glob, got, want)
		}
	}
}

func TestSelectHint(t *testing.T) {
	for on, want := range map[string]string{
		"worker": "worker is a tag or a role; write @worker",
		"!idle":  "idle is a tag or a role; write @idle",
		"front":  "front is a tag or a role; write @front",
		"@db":    "db is the name of a node; write it without @",
		"nope":   "",
		"@nope":  "",
		"zzz*":   "",
	} {
		s, err := ParseSelector([]string{on})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = s.Select(hive); err == nil || failure.Hint(err) != want {
			t.Errorf("--on %s: error %v, hint %q; want %q", on, err, failure.Hint(err), want)
		}
	}
}

// A node whose tags are unknown is never left out silently.
func TestBrokenNodes(t *testing.T) {
	broken := *hive
	broken.Broken = map[string]*nixeval.NixError{"web-1": {Message: nixlog.Message{Text: "bad"}}}
	for on, want := range map[string]string{
		"@data":          "db web-1",
		"@solo":          "web-1",
		"db":             "db",
		"@data,!web-1":   "db",
		"!@compute":      "db web-1 web-2.example.org",
		"web-*,!@nobody": "web-1 web-2.example.org",
	} {
		s, err := ParseSelector([]string{on})
		if err != nil {
			t.Fatal(err)
		}
		nodes, err := s.Select(&broken)
		var got []string
		for _, n := range nodes {
			got = append(got, n.Name)
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %v, %v; want %s", on, got, err, want)
		}
	}
}

func TestSelectEmptyHive(t *testing.T) {
	_, err := Selector{}.Select(&nixeval.Hive{})
	if err == nil || !strings.Contains(err.Error(), "no nodes") {
		t.Error(err)
	}
}

func TestUnitsOfNodes(t *testing.T) {
	got := strings.Join(Units(hive.Nodes), " ")
	if got != "db web-1 web-2.example.org worker" {
		t.Errorf("units %s", got)
	}
}

// A selection is never wider than the hive, and never empty without an error.
func FuzzSelect(f *testing.F) {
	for _, s := range []string{"a", "@b*,!c", "[", "\\", ",", "!@", "@front/blue"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, on string) {
		s, err := ParseSelector([]string{on})
		if err != nil {
			return
		}
		nodes, err := s.Select(hive)
		if (len(nodes) == 0) != (err != nil) || len(nodes) > len(hive.Nodes) {
			t.Fatalf("%q: %d nodes, error %v", on, len(nodes), err)
		}
		for _, n := range nodes {
			if matchesAny(s.not, n) {
				t.Fatalf("%q selected %s, which it leaves out", on, n.Name)
			}
		}
	})
}
