package stages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/selection"
)

// Apply changes the members in the order that the plan shows, with the systems of the plan: it does not evaluate them again.
func TestApplyExecutesPlan(t *testing.T) {
	t.Parallel()
	w, _ := newRunningCluster(t, 2, 3)
	w.revision++
	two, _ := selection.ParseShare("2")
	var shown []string
	var made Plan
	evaluations := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.facts)
	}
	planned := 0
	_, err := w.session(t.Context(), "apply", func(d *Deployer) error {
		var err error
		if made, err = d.Preview(t.Context(), w.hive, w.hive.Nodes, Options{Options: plan.Options{MaxUnavailable: two}}); err != nil {
			return err
		}
		planned = evaluations()
		for _, p := range made.Nodes {
			shown = append(shown, fmt.Sprintf("%s %s %d %t", p.Node, p.Action, p.Wave, p.Drained))
		}
		o := Options{Options: plan.Options{Options: node.Options{Goal: node.Switch, Confirm: time.Minute}, MaxUnavailable: two}, BootTimeout: 10 * time.Second, Plan: &made}
		return d.Apply(t.Context(), w.hive, w.hive.Nodes, o)
	})
	if err != nil {
		t.Fatal(err)
	}
	wantTexts(t, shown, "cp-1 switch 1 true", "cp-2 switch 2 true", "w-1 switch 3 true", "w-2 switch 3 true", "w-3 switch 4 true")
	if got := w.changeOrder(); !strings.HasPrefix(got, "cp-1 cp-2 w-") || !strings.HasSuffix(got, " w-3") {
		t.Errorf("apply changed %s", got)
	}
	if more := evaluations() - planned; more != 0 {
		t.Errorf("apply evaluated %d times", more)
	}
	if !made.Changes() {
		t.Error("the plan has no changes")
	}
	// The plan is executed. Nodes without a change have no wave.
	if _, err := w.session(t.Context(), "plan", func(d *Deployer) error {
		made, err = d.Preview(t.Context(), w.hive, w.hive.Nodes, Options{Options: plan.Options{WithoutKeys: true}})
		return err
	}); err != nil || made.Nodes[0].Action != plan.WouldNothing || made.Nodes[0].Wave != 0 {
		t.Errorf("after apply: %+v, %v", made.Nodes, err)
	}
}

// A plan says if the cluster does not answer, because changes of the cluster may be missing then.
func TestPlanOfUnknownCluster(t *testing.T) {
	t.Parallel()
	w, e := newRunningCluster(t, 1, 1)
	for _, refuse := range []string{"", "members"} {
		e.Refuse, e.Stopped = refuse, map[string]string{"cp-1": "d.service"}
		var made Plan
		if _, err := w.session(t.Context(), "plan", func(d *Deployer) (err error) {
			made, err = d.Preview(t.Context(), w.hive, w.hive.Nodes, Options{Options: plan.Options{WithoutKeys: true}})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		const want = "the state of the members is unknown: the engine does not answer\ncp-1: d.service is stopped"
		if err := made.Unknown; (err != nil) != (refuse != "") || err != nil && (err.Error() != want || failure.KindOf(err) != failure.Cluster) {
			t.Errorf("refuse %q: %v, want %q", refuse, err, want)
		}
	}
	if slices.ContainsFunc(e.Calls, func(what string) bool { return strings.HasPrefix(what, "start ") }) {
		t.Errorf("a plan has started a unit: %q", e.Calls)
	}
}

// A plan whose machines do not exist yet is evaluated without their host keys, so apply evaluates again with all facts.
func TestApplyEvaluatesWithNewFacts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"w": 1})
	_, err := w.session(t.Context(), "apply", func(d *Deployer) error {
		made, err := d.Preview(t.Context(), w.hive, w.hive.Nodes, Options{Options: plan.Options{WithoutKeys: true}})
		if err != nil {
			return err
		}
		o := Options{Options: plan.Options{Options: node.Options{Goal: node.Switch, Confirm: time.Minute}}, BootTimeout: 10 * time.Second, Plan: &made}
		return d.Apply(t.Context(), w.hive, w.hive.Nodes, o)
	})
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.facts) != 2 || w.facts[0] == w.facts[1] || !strings.Contains(w.facts[1], "ssh-ed25519") {
		t.Errorf("the evaluations saw %q", w.facts)
	}
}

func TestComparePlans(t *testing.T) {
	t.Parallel()
	preview := func(name string, change func(*Preview)) Preview {
		p := Preview{Node: name, Action: plan.WouldSwitch, From: "/old", To: "/new", Drv: "/new.drv", Generation: 3, Profile: "/old",
			Machine: &MachinePreview{Action: changes.Keep}, Keys: &KeysPreview{Upload: []string{"a"}}}
		change(&p)
		return p
	}
	same := func(*Preview) {}
	saved := func(nodes ...Preview) SavedPlan {
		s := SavedPlan{Cluster: "demo", Hive: "/hive.nix", Deployments: map[string]string{}, Nodes: nodes}
		for _, n := range nodes {
			s.Deployments[n.Node] = "options"
		}
		return s
	}
	withMachine := func(a changes.Action) func(*Preview) {
		return func(p *Preview) { p.Machine = &MachinePreview{Action: a} }
	}
	for name, test := range map[string]struct {
		was, is SavedPlan
		want    []string
	}{
		"same":               {saved(preview("a", same)), saved(preview("a", same)), nil},
		"other cluster":      {SavedPlan{Cluster: "one"}, SavedPlan{Cluster: "two"}, []string{"the plan is for the cluster one, and the hive is that of two"}},
		"executed":           {saved(preview("a", same)), saved(preview("a", func(p *Preview) { p.From, p.Generation, p.Action, p.Keys = "/new", 4, plan.WouldNothing, nil })), nil},
		"only the profile":   {saved(preview("a", same)), saved(preview("a", func(p *Preview) { p.Generation, p.Profile = 4, "/new" })), nil},
		"fewer keys":         {saved(preview("a", same)), saved(preview("a", func(p *Preview) { p.Keys = &KeysPreview{} })), nil},
		"machine was made":   {saved(preview("a", withMachine(changes.Create))), saved(preview("a", withMachine(changes.Finish))), nil},
		"machine restarted":  {saved(preview("a", withMachine(changes.Restart))), saved(preview("a", withMachine(changes.Keep))), nil},
		"machine removed":    {saved(preview("a", same), Preview{Node: "b", Action: plan.WouldRemove}), saved(preview("a", same)), nil},
		"another system":     {saved(preview("a", same)), saved(preview("a", func(p *Preview) { p.To = "/other" })), []string{"a: the hive has another system now: /other, planned /new"}},
		"another generation": {saved(preview("a", same)), saved(preview("a", func(p *Preview) { p.Generation = 5 })), []string{"a: its profile has generation 5 now, when the plan was made 3"}},
		"node changed":       {saved(preview("a", same)), saved(preview("a", func(p *Preview) { p.From = "/hand" })), []string{"a: it runs another system now: /hand, when the plan was made /old"}},
		"more keys": {saved(preview("a", same)), saved(preview("a", func(p *Preview) { p.Keys = &KeysPreview{Upload: []string{"a", "b"}, Remove: []string{"/run/keys/c"}} })),
			[]string{"a: it would also change now: key b", "a: it would also change now: key /run/keys/c"}},
		"key uploaded": {saved(preview("a", same)), saved(preview("a", func(p *Preview) { p.Keys = &KeysPreview{Adjust: []string{"a"}} })), nil},
		"content of a key": {saved(preview("a", func(p *Preview) { p.Keys = &KeysPreview{Adjust: []string{"a"}} })), saved(preview("a", same)),
			[]string{"a: it would also change now: key a"}},
		"version": {saved(preview("a", same)), saved(preview("a", func(p *Preview) { p.Version = &engine.Change{From: "1", To: "2"} })),
			[]string{"a: it would also change now: version 1 to 2"}},
		"labels":           {saved(preview("a", same)), saved(preview("a", func(p *Preview) { p.Adjust = []string{"label x=1"} })), []string{"a: it would also change now: label x=1"}},
		"machine":          {saved(preview("a", same)), saved(preview("a", withMachine(changes.Recreate))), []string{"a: its machine: planned keep, now recreate"}},
		"removal":          {saved(preview("a", same)), saved(preview("a", same), Preview{Node: "b", Action: plan.WouldRemove}), []string{"b: its machine would be removed now"}},
		"new node":         {saved(preview("a", same)), saved(preview("a", same), preview("b", same)), []string{"b: the plan does not contain the node"}},
		"node disappeared": {saved(preview("a", same), preview("b", same)), saved(preview("a", same)), []string{"b: the hive, or the selection of the plan, does not contain the node any more"}},
	} {
		if diff := cmp.Diff(test.want, test.was.CompareWith(test.is)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	changed := saved(preview("a", same))
	changed.Deployments["a"] = "other options"
	want := []string{"a: its options in the hive have changed: deployment, its role, or cluster"}
	wantTexts(t, saved(preview("a", same)).CompareWith(changed), want...)
}

// A plan file contains the whole plan, and only its owner can read it.
func TestPlanFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.plan")
	want := SavedPlan{Version: planVersion, Hive: "/hive.nix", Cluster: "demo", Made: time.Date(2026, 11, 23, 1, 2, 3, 0, time.UTC),
		Arguments: PlanArguments{On: []string{"a"}, Sets: []string{"x=1"}, NoKeys: true}, Deployments: map[string]string{"a": "1"},
		Nodes: []Preview{{Node: "a", Action: plan.WouldSwitch, From: "/old", To: "/new", Wave: 2, Drained: true, Machine: &MachinePreview{Action: changes.Keep}}}}
	key := []byte("key")
	if err := want.Write(file, key); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadPlan(file, written)
	if err != nil || !got.IsMadeWith(key) {
		t.Fatalf("%v, made with the key: %v", err, got.IsMadeWith(key))
	}
	got.MAC = ""
	encode := func(s SavedPlan) string {
		data, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if diff := cmp.Diff(encode(want), encode(got)); diff != "" {
		t.Error(diff)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 || !IsPlan(file) {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	for name, c := range map[string]struct{ old, new, key string }{
		"changed":                {`"noKeys": true`, `"noKeys": false`, "key"},
		"a field more":           {`"deployments"`, `"ARGUMENTS": {"noKeys": false}, "deployments"`, "key"},
		"no MAC":                 {`"mac"`, `"revision"`, "key"},
		"another state":          {"", "", "other"},
		"a state without a plan": {"", "", ""},
	} {
		if s, err := ReadPlan(file, []byte(strings.Replace(string(written), c.old, c.new, 1))); err == nil && s.IsMadeWith([]byte(c.key)) {
			t.Errorf("%s: the plan counts as made with the key", name)
		}
	}
	for text, want := range map[string]string{
		"":                        "the file is not a plan",
		"{}":                      "the file is not a plan",
		`{"version":2}`:           "the plan has version 2, and this nixbench reads version 1",
		`{"version":1}`:           "the hive, or the name or the action of a node is missing",
		`{"version":1,"hive":3}`:  "the file is damaged: json",
		`{"version":1,"other":3}`: "the file is damaged: json: unknown field",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadPlan(file, []byte(text)); err == nil || IsPlan(file) || !strings.Contains(err.Error(), want) || failure.KindOf(err) != failure.Usage {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzReadPlan(f *testing.F) {
	f.Add([]byte(`{"version":1,"made":"2026-11-23T01:02:03Z","cluster":"demo","hive":"/hive.nix","arguments":{"on":["a"]},"deployments":{"a":"1"},"nodes":[{"node":"a","action":"switch"}],"mac":"00"}`))
	f.Add([]byte(`{"version":1,"hive":"x","evaluated":{"survey":{"named":["a"],"deployments":{"a":{"targetHost":"a"}}},"systems":{"a":{"out":"/nix/store/00000000000000000000000000000000-a"}}}}`))
	f.Add([]byte(`{"version":1,"hive":"x","hive":"y","nodes":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ReadPlan("a.plan", data)
		if err == nil && s.IsMadeWith([]byte("key")) {
			t.Errorf("a plan without the key is accepted: %+v", s)
		}
		if err == nil && s.CheckSystems() == nil && len(s.NodeNames()) == 0 {
			t.Errorf("a plan without nodes is accepted: %+v", s)
		}
	})
}

// A plan can be made while apply asks about machines. Apply then uses its systems.
func TestPlanInQuestion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"w": 3})
	w.must(w.apply())
	w.scale(map[string]int{"w": 2})
	w.revision++
	var shown []string
	before := len(w.facts)
	_, err := w.session(t.Context(), "apply", func(d *Deployer) error {
		o := Options{Options: plan.Options{Options: node.Options{Goal: node.Switch, Confirm: time.Minute}}, BootTimeout: 10 * time.Second, Plan: &Plan{}}
		ask := d.Machines.Ask
		d.Machines.Ask = func(changes []changes.Change) error {
			made, err := d.Preview(t.Context(), w.hive, w.hive.Nodes, Options{Options: plan.Options{WithoutKeys: true}})
			if err != nil {
				return err
			}
			for _, p := range made.Nodes {
				shown = append(shown, p.Node+" "+p.Action)
			}
			*o.Plan = made
			return ask(changes)
		}
		return d.Apply(t.Context(), w.hive, w.hive.Nodes, o)
	})
	if err != nil {
		t.Fatal(err)
	}
	wantTexts(t, shown, "w-1 switch", "w-2 switch", "w-3 removed")
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.questions) != 1 || len(w.facts) > before+2 {
		t.Errorf("questions %q, %d evaluations", w.questions, len(w.facts)-before)
	}
}

// A plan that is cancelled after the build returns an error.
func TestCancelledPlan(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{1, 2} {
		w, _ := newRunningCluster(t, 1, nodes)
		w.revision++
		ctx, cancel := context.WithCancelCause(t.Context())
		w.onEvent = func(e event.Event) {
			if e.Kind == event.PhaseStart && e.Phase == event.Check {
				time.Sleep(300 * time.Millisecond) // until the nodes are inspected
				cancel(errors.New("interrupted"))
			}
		}
		_, err := w.session(t.Context(), "plan", func(d *Deployer) error {
			_, err := d.Preview(ctx, w.hive, w.hive.Nodes, Options{})
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "interrupted") {
			t.Errorf("%d: %v", nodes, err)
		}
	}
}
