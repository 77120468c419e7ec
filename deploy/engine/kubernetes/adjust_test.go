package kubernetes

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// say sets the settings of all members in the hive.
func (e *Engine) say(settings string) *Engine {
	for i := range e.Cluster.Members {
		e.Cluster.Members[i].Settings = json.RawMessage(settings)
	}
	return e
}

func TestAdjust(t *testing.T) {
	cp := node(true)
	cp["taints"] = []object{{"key": controlPlaneTaint.Key, "effect": controlPlaneTaint.Effect}}
	w := node(true)
	w["labels"] = object{"kubernetes.io/os": "linux", "theirs": "1"}
	w["taints"] = []object{{"key": "theirs", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}}
	c := &cluster{t: t, nodes: map[string]object{"cp-1": cp, "w-1": w, "w-2": node(true)}}
	both := []string{"cp-1", "w-1", "w-9"}
	see := func(name string) string {
		t.Helper()
		n := c.nodes[name]
		data, err := json.Marshal([]any{n["labels"], n["taints"]})
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	const theirs = `{"effect":"NoExecute","key":"theirs","timeAdded":"2026-01-01T00:00:00Z"}`
	const usually = `{"effect":"NoSchedule","key":"node-role.kubernetes.io/control-plane"}`
	for _, step := range []struct {
		settings string
		words    map[string]string // by node
		cp, w    string
	}{
		{`{"labels":{},"taints":null}`, nil,
			`[{},[` + usually + `]]`, `[{"kubernetes.io/os":"linux","theirs":"1"},[` + theirs + `]]`},
		{`{"labels":{"a":"1","b":"2"},"taints":[{"key":"x","value":"y","effect":"NoSchedule"}]}`,
			map[string]string{
				"cp-1": "label a=1, label b=2, no taint node-role.kubernetes.io/control-plane:NoSchedule, taint x=y:NoSchedule",
				"w-1":  "label a=1, label b=2, taint x=y:NoSchedule"},
			`[{"a":"1","b":"2"},[{"effect":"NoSchedule","key":"x","value":"y"}]]`,
			`[{"a":"1","b":"2","kubernetes.io/os":"linux","theirs":"1"},[` + theirs + `,{"effect":"NoSchedule","key":"x","value":"y"}]]`},
		// One taint is removed and one is changed. A taint with another effect is another taint.
		{`{"labels":{"a":"3"},"taints":[{"key":"x","value":"z","effect":"NoSchedule"},{"key":"x","effect":"NoExecute"}]}`,
			map[string]string{
				"cp-1": "label a=3, no label b, taint x=z:NoSchedule, taint x:NoExecute",
				"w-1":  "label a=3, no label b, taint x=z:NoSchedule, taint x:NoExecute"},
			`[{"a":"3"},[{"effect":"NoSchedule","key":"x","value":"z"},{"effect":"NoExecute","key":"x"}]]`,
			`[{"a":"3","kubernetes.io/os":"linux","theirs":"1"},[` + theirs + `,{"effect":"NoSchedule","key":"x","value":"z"},{"effect":"NoExecute","key":"x"}]]`},
		// Without a list, the taint of kubeadm is restored.
		{`{"labels":{},"taints":null}`,
			map[string]string{
				"cp-1": "no label a, no taint x=z:NoSchedule, no taint x:NoExecute, taint node-role.kubernetes.io/control-plane:NoSchedule",
				"w-1":  "no label a, no taint x=z:NoSchedule, no taint x:NoExecute"},
			`[{},[{"effect":"NoSchedule","key":"node-role.kubernetes.io/control-plane"}]]`,
			`[{"kubernetes.io/os":"linux","theirs":"1"},[` + theirs + `]]`},
	} {
		e := c.engine("cp-1", "w-1", "w-2").say(step.settings)
		for _, dry := range []bool{true, false} {
			before := see("cp-1") + see("w-1")
			words, err := e.Adjust(t.Context(), both, dry)
			if err != nil || len(words) != len(step.words) {
				t.Fatalf("%s: %v, %v", step.settings, words, err)
			}
			for name, want := range step.words {
				if got := strings.Join(words[name], ", "); got != want {
					t.Errorf("%s: %s: %s, want %s", step.settings, name, got, want)
				}
			}
			if dry && see("cp-1")+see("w-1") != before {
				t.Errorf("a look at %s has changed something", step.settings)
			}
		}
		if see("cp-1") != step.cp || see("w-1") != step.w {
			t.Errorf("%s: cp-1 has %s, want %s; w-1 has %s, want %s", step.settings, see("cp-1"), step.cp, see("w-1"), step.w)
		}
		writes := len(c.did("kubectl replace"))
		if words, err := e.Adjust(t.Context(), both, false); err != nil || len(words) > 0 || len(c.did("kubectl replace")) != writes {
			t.Errorf("%s, once more: %v, %v", step.settings, words, err)
		}
	}
	if got := see("w-2"); got != `[{},null]` {
		t.Errorf("w-2 was not asked for, and has %s", got)
	}
}

// For a node that registered with its labels, only the annotation is written. Later changes of the labels
// by other clients are reverted.
func TestAdjustRegistered(t *testing.T) {
	w := node(true)
	w["labels"] = object{"a": "1"}
	c := &cluster{t: t, nodes: map[string]object{"cp-1": node(true), "w-1": w}, conflicts: 2}
	e := c.engine("cp-1", "w-1").say(`{"labels":{"a":"1"},"taints":null}`)
	if words, err := e.Adjust(t.Context(), []string{"w-1"}, false); err != nil || len(words) > 0 {
		t.Errorf("%v, %v", words, err)
	}
	if got := c.nodes["w-1"]["annotations"].(map[string]any)["nixbench.dev/applied"]; got != `{"labels":{"a":"1"},"taints":null}` {
		t.Errorf("the note is %v", got)
	}
	if got := len(c.did("kubectl replace")); got != 3 {
		t.Errorf("two conflicts, and %d attempts", got)
	}
	delete(c.nodes["w-1"]["labels"].(map[string]any), "a")
	if words, err := e.Adjust(t.Context(), []string{"w-1"}, false); err != nil || !slices.Equal(words["w-1"], []string{"label a=1"}) {
		t.Errorf("%v, %v", words, err)
	}
	e.say(`{"labels":{},"taints":null}`)
	if words, err := e.Adjust(t.Context(), []string{"w-1"}, false); err != nil || !slices.Equal(words["w-1"], []string{"no label a"}) {
		t.Errorf("%v, %v", words, err)
	}
	if got := c.nodes["w-1"]["annotations"].(map[string]any); len(got) != 0 {
		t.Errorf("the note stays without a reason: %v", got)
	}

	c.noCluster = true
	if words, err := e.Adjust(t.Context(), []string{"w-1"}, false); err != nil || words != nil {
		t.Errorf("before there is a cluster: %v, %v", words, err)
	}
	c.noCluster, c.down = false, map[string]string{"cp-1": "connection refused"}
	if _, err := e.Adjust(t.Context(), []string{"w-1"}, false); err == nil || !strings.Contains(err.Error(), "labels and taints: connection refused") {
		t.Error(err)
	}
}
