package nixeval

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func decode(t *testing.T, text string) surveyResult {
	t.Helper()
	var s surveyResult
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRolesBecomeNodes(t *testing.T) {
	h, err := newHive(decode(t, `{
		"named": ["db"],
		"roles": {
			"worker": {"count": 11, "tags": ["compute"], "perNode": false},
			"cp": {"count": 2, "perNode": true},
			"idle": {"count": 0}
		},
		"deployments": {
			"db": {"tags": ["z", "a", "a"]},
			"worker": {"tags": ["compute"]},
			"cp-1": {}, "cp-2": {}
		}
	}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range h.Nodes {
		got = append(got, fmt.Sprintf("%s/%s/%s/%d%v", n.Name, n.Unit, n.Role, n.Index, n.Tags))
	}
	want := []string{
		"cp-1/cp-1/cp/1[]", "cp-2/cp-2/cp/2[]", "db/db//0[a z]",
		"worker-1/worker/worker/1[compute]", "worker-2/worker/worker/2[compute]",
	}
	if diff := cmp.Diff(want, got[:5]); diff != "" {
		t.Error(diff)
	}
	if last := h.Nodes[len(h.Nodes)-1].Name; last != "worker-11" {
		t.Errorf("the last node is %s; worker-2 must come before worker-10", last)
	}
	var units []string
	for _, u := range h.Units {
		units = append(units, fmt.Sprintf("%s:%d", u.Name, len(u.Nodes)))
	}
	if diff := cmp.Diff([]string{"cp-1:1", "cp-2:1", "db:1", "worker:11"}, units); diff != "" {
		t.Error("units: " + diff)
	}
}

func TestDuplicateNames(t *testing.T) {
	for _, tc := range []struct{ survey, want string }{
		{`{"named": ["worker-2"], "roles": {"worker": {"count": 3}}}`, `node "worker-2" and node "worker-2" of role "worker"`},
		{`{"named": ["worker"], "roles": {"worker": {"count": 1}}}`, `node "worker" and role "worker"`},
		{`{"roles": {"a": {"count": 1}, "a-1": {"count": 1}}}`, `node "a-1" of role "a" and role "a-1"`},
		{`{"named": ["a b"]}`, `node "a b": a node's name has no spaces`},
		{`{"named": ["../x"]}`, "a node's name"},
		{`{"named": ["x/y"]}`, "a node's name"},
		{`{"named": ["@x"]}`, "a node's name"},
		{`{"named": ["x,y"]}`, "a node's name"},
		{`{"named": [""]}`, "a node's name"},
		{`{"named": [".hidden"]}`, "a node's name"},
		{`{"roles": {"-x": {"count": 1}}}`, "a role's name"},
		{`{"roles": {"é": {"count": 1}}}`, "a role's name"},
	} {
		if _, err := newHive(decode(t, tc.survey), nil); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", tc.survey, err, tc.want)
		}
	}
}

// Colmena rejects only the empty name.
func TestUnusualNodeNames(t *testing.T) {
	if _, err := newHive(decode(t, `{"named": ["user@host", "x:1", "é", "a.b_c-d", "1", "-x"]}`), nil); err != nil {
		t.Error(err)
	}
}

func TestNaturalOrder(t *testing.T) {
	want := []string{"", "a", "a-1", "a-2", "a-010", "a-10", "a-10b", "a-11", "a1b2", "a1b10", "b"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, CompareNatural)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzNaturalOrder(f *testing.F) {
	f.Add("a-2", "a-10")
	f.Fuzz(func(t *testing.T, a, b string) {
		ab, ba := CompareNatural(a, b), CompareNatural(b, a)
		if (ab < 0) != (ba > 0) || (ab == 0) != (a == b) {
			t.Fatalf("%q and %q: %d, the other way round %d", a, b, ab, ba)
		}
	})
}

// No way in which Go formats values may show the text of a key.
func TestSecretsStaySecret(t *testing.T) {
	const text = "be sure to drink"
	var d Deployment
	if err := json.Unmarshal([]byte(`{"keys": {"k": {"text": "`+text+`"}}}`), &d); err != nil {
		t.Fatal(err)
	}
	if got := d.Keys["k"].Text.Reveal(); got != text {
		t.Fatalf("the secret itself is %q", got)
	}
	js, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "key", d.Keys["k"].Text, "value", *d.Keys["k"].Text)
	for how, shown := range map[string]string{
		"json": string(js), "%v": fmt.Sprintf("%v", d.Keys["k"].Text), "%+v": fmt.Sprintf("%+v", *d.Keys["k"].Text),
		"%#v": fmt.Sprintf("%#v", *d.Keys["k"].Text), "%s": d.Keys["k"].Text.String(),
		"%q": fmt.Sprintf("%q", d.Keys["k"].Text), "slog": log.String(),
	} {
		if strings.Contains(shown, "drink") {
			t.Errorf("%s shows the secret: %s", how, shown)
		}
	}
}

// Any JSON of a survey results in a hive that satisfies the invariants, or in an error.
func FuzzHive(f *testing.F) {
	f.Add([]byte(`{"named": ["a"], "roles": {"w": {"count": 2}}, "deployments": {"a": {"keys": {"k": {"text": "x"}}}}}`))
	f.Add([]byte(`{"roles": {"w": {"count": -1, "perNode": true}}}`))
	f.Add([]byte(`{"named": null, "deployments": {"a": null}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var s surveyResult
		if json.Unmarshal(data, &s) != nil {
			return
		}
		for _, r := range s.Roles {
			if r.Count > 1000 {
				return // the type of the option limits the count, not this function
			}
		}
		h, err := newHive(s, nil)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, n := range h.Nodes {
			if seen[n.Name] || h.Unit(n.Unit) == nil || !slices.Contains(h.Unit(n.Unit).Nodes, n.Name) {
				t.Fatalf("node %+v of %s", n, data)
			}
			seen[n.Name] = true
		}
	})
}
