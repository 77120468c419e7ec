package stages

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/enginetest"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// twoEngines is a world whose nodes go over from the engine "a" to the engine "b" and back.
type twoEngines struct {
	*world
	a, b *enginetest.Fake

	mu      sync.Mutex
	clients map[string][]string // the members of the last client of each engine, by kind
}

// newTwoEngines returns a world of one control plane and two workers that run the engine a.
func newTwoEngines(t *testing.T) *twoEngines {
	w := &twoEngines{world: newWorld(t, map[string]int{"cp": 1, "w": 2}), a: &enginetest.Fake{}, b: &enginetest.Fake{}, clients: map[string][]string{}}
	w.engines = rollout.Engines{}
	for kind, e := range map[string]*enginetest.Fake{"a": w.a, "b": w.b} {
		w.engines[kind] = func(c engine.Cluster) engine.Engine {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.clients[kind] = nil
			for _, m := range c.Members {
				w.clients[kind] = append(w.clients[kind], m.Node+" "+m.Role)
			}
			return e
		}
	}
	w.use("a", "cp", "w")
	w.must(w.apply())
	w.a.Registered = w.allReady()
	w.reset()
	return w
}

// use sets the engine of roles; an empty kind means none.
func (w *twoEngines) use(kind string, roles ...string) {
	for i, u := range w.hive.Units {
		if slices.Contains(roles, u.Name) {
			w.hive.Units[i].Deployment.Engine = nil
			if kind != "" {
				w.hive.Units[i].Deployment.Engine = &nixeval.Engine{Kind: kind, Role: kind + "-" + u.Name, OneByOne: u.Name == "cp"}
			}
		}
	}
}

func (w *twoEngines) allReady() map[string]engine.Status {
	return map[string]engine.Status{"cp-1": {Ready: true, OneByOne: true}, "w-1": {Ready: true}, "w-2": {Ready: true}}
}

func (w *twoEngines) reset() { w.a.Calls, w.b.Calls = nil, nil }

// runs returns the engine of each node's system, as "cp-1:a w-1:a w-2:b".
func (w *twoEngines) runs() string {
	var out []string
	for _, node := range slices.Sorted(maps.Keys(w.machines)) {
		kind, _ := w.engineFiles.Load(w.machines[node].current)
		if kind == nil {
			kind = "none"
		}
		out = append(out, node+":"+kind.(string))
	}
	return strings.Join(out, " ")
}

// drainedNodes returns the nodes that the state has as drained by an engine.
func (w *twoEngines) drainedNodes(kind string) string {
	var out []string
	for node, n := range w.state().Nodes {
		if n.Memberships[kind].Drained {
			out = append(out, node)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// wantCalls compares the calls of an engine, without those of Conditions and of calls on several nodes at once.
func (w *twoEngines) wantCalls(t *testing.T, name string, e *enginetest.Fake, want ...string) {
	t.Helper()
	got := slices.DeleteFunc(e.MemberCalls(), func(s string) bool { return strings.HasPrefix(s, "look") || strings.HasPrefix(s, "admit") })
	if i := slices.IndexFunc(got, func(s string) bool { return !strings.HasPrefix(s, "drain") && !strings.HasPrefix(s, "remove") }); i >= 0 {
		slices.Sort(got[i:])
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s: %s", name, diff)
	}
}

var uncordonedAll = []string{"uncordon cp-1", "uncordon w-1", "uncordon w-2", "wait for cp-1", "wait for w-1", "wait for w-2"}

// All nodes go over to another engine and back. The engine that runs drains them, all of them before the first one
// changes. When they run it again, they are uncordoned.
func TestGoOverAndBack(t *testing.T) {
	t.Parallel()
	for name, missing := range map[string]bool{"by the files": false, "by the state": true} {
		w := newTwoEngines(t)
		w.noEngineFiles.Store(missing)
		w.a.OnCall = func(what string) {
			if strings.HasPrefix(what, "drain") && w.runs() != "cp-1:a w-1:a w-2:a" {
				t.Errorf("%s: %s, when a node has changed: %s", name, what, w.runs())
			}
		}
		w.use("b", "cp", "w")
		w.must(w.apply())
		w.wantCalls(t, name+": a", w.a, "drain cp-1", "drain w-1", "drain w-2")
		w.wantCalls(t, name+": b", w.b)
		if !w.a.Options.Whole {
			t.Errorf("%s: the drain is not that of a whole cluster", name)
		}
		if got := w.runs(); got != "cp-1:b w-1:b w-2:b" || w.drainedNodes("a") != "cp-1 w-1 w-2" || w.drainedNodes("b") != "" {
			t.Errorf("%s: %s; drained by a: %s, by b: %s", name, got, w.drainedNodes("a"), w.drainedNodes("b"))
		}
		if diff := cmp.Diff([]string{"cp-1 a-cp", "w-1 a-w", "w-2 a-w"}, w.clients["a"]); diff != "" {
			t.Errorf("%s: the members of the client that drained: %s", name, diff)
		}

		w.reset()
		w.a.OnCall = nil
		w.must(w.apply())
		w.wantCalls(t, name+", again: a", w.a)

		w.b.Registered = w.allReady()
		w.use("a", "cp", "w")
		w.must(w.apply())
		w.wantCalls(t, name+", back: b", w.b, "drain cp-1", "drain w-1", "drain w-2")
		w.wantCalls(t, name+", back: a", w.a, uncordonedAll...)
		if got := w.runs(); got != "cp-1:a w-1:a w-2:a" || w.drainedNodes("a") != "" || w.drainedNodes("b") != "cp-1 w-1 w-2" || w.a.Registered["w-1"].Drained {
			t.Errorf("%s, back: %s; drained by a: %s, by b: %s", name, got, w.drainedNodes("a"), w.drainedNodes("b"))
		}
	}
}

// A failure before the first change leaves all nodes as they are, and they accept work.
func TestGoOverRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(*twoEngines)
		wantErr string
	}{
		"the drain fails":         {func(w *twoEngines) { w.a.Undrainable = "w-2" }, "w-2: drain: its work does not end"},
		"the drain would block":   {func(w *twoEngines) { w.a.Blocked = map[string]string{"w-1": "shop/debug"} }, "w-1: drain: shop/debug is bare"},
		"the engine is not there": {func(w *twoEngines) { w.a.Refuse = "members" }, "the nodes that leave a cannot be drained, and nothing is changed: the engine does not answer"},
	} {
		w := newTwoEngines(t)
		w.use("b", "cp", "w")
		c.prepare(w)
		_, err := w.apply()
		if err == nil || err.Error() != c.wantErr {
			t.Errorf("%s: %v, want %q", name, err, c.wantErr)
		}
		if got := w.runs(); got != "cp-1:a w-1:a w-2:a" || w.drainedNodes("a") != "" || w.a.Registered["w-1"].Drained {
			t.Errorf("%s: %s, drained %s", name, got, w.drainedNodes("a"))
		}
		w.must(w.apply(func(o *Options) { o.WithoutDrain = true }))
		if got := w.runs(); got != "cp-1:b w-1:b w-2:b" {
			t.Errorf("%s, without a drain: %s", name, got)
		}
	}
}

// A node that is rolled back takes work of its engine again. The others have gone over, and the next run changes the
// rest.
func TestGoOverFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options  func(*Options)
		runs     string
		drained  string
		uncordon []string
	}{
		"one node": {func(*Options) {}, "cp-1:b w-1:a w-2:b", "cp-1 w-2", []string{"uncordon w-1", "wait for w-1"}},
		"all":      {func(o *Options) { o.RollbackAll, o.WithoutKeys = true, true }, "cp-1:a w-1:a w-2:a", "", uncordonedAll},
	} {
		w := newTwoEngines(t)
		w.use("b", "cp", "w")
		w.machines["w-1"].switchFails = true
		if _, err := w.apply(c.options); err == nil || !strings.Contains(err.Error(), "w-1") {
			t.Errorf("%s: %v", name, err)
		}
		w.wantCalls(t, name, w.a, append([]string{"drain cp-1", "drain w-1", "drain w-2"}, c.uncordon...)...)
		if got := w.runs(); got != c.runs || w.drainedNodes("a") != c.drained {
			t.Errorf("%s: %s, drained %s", name, got, w.drainedNodes("a"))
		}
		w.machines["w-1"].switchFails = false
		w.must(w.apply())
		if got := w.runs(); got != "cp-1:b w-1:b w-2:b" || w.drainedNodes("a") != "cp-1 w-1 w-2" {
			t.Errorf("%s, again: %s, drained %s", name, got, w.drainedNodes("a"))
		}
	}
}

// If only some nodes leave an engine, they are removed from its list of members before they change.
func TestSomeNodesGoOver(t *testing.T) {
	t.Parallel()
	w := newTwoEngines(t)
	w.use("b", "w")
	w.a.OnCall = func(what string) {
		if what == "remove w-1" && !strings.Contains(w.runs(), "w-1:a") {
			t.Error("w-1 was removed after its change")
		}
	}
	w.must(w.apply())
	if w.a.Options.Whole {
		t.Error("the drain of two members is that of a whole cluster")
	}
	calls := w.a.MemberCalls()
	slices.Sort(calls) // w-1 and w-2 change at the same time
	wantTexts(t, calls, "admit w-1", "admit w-2", "drain w-1", "drain w-2", "remove w-1", "remove w-2")
	if got := w.runs(); got != "cp-1:a w-1:b w-2:b" || w.drainedNodes("a") != "" || len(w.a.Registered) != 1 {
		t.Errorf("%s, drained %q, members %v", got, w.drainedNodes("a"), w.a.Registered)
	}

	// w-1 comes back, and is a new member.
	w.reset()
	w.a.OnCall = nil
	w.b.Registered = map[string]engine.Status{"w-1": {Ready: true}, "w-2": {Ready: true}}
	w.use("a", "w")
	w.must(w.apply())
	w.wantCalls(t, "back: b", w.b, "drain w-1", "drain w-2")
	w.wantCalls(t, "back: a", w.a)
	if got := w.runs(); got != "cp-1:a w-1:a w-2:a" {
		t.Error(got)
	}
}

// A member that runs another engine now is not drained by the engine that still lists it.
func TestFormerMemberIsIgnored(t *testing.T) {
	t.Parallel()
	w := newTwoEngines(t)
	w.use("b", "cp", "w")
	w.machines["w-1"].switchFails = true
	if _, err := w.apply(); err == nil {
		t.Fatal("the switch of w-1 did not fail")
	}
	w.machines["w-1"].switchFails = false
	w.b.Registered = w.allReady() // from an earlier time
	w.reset()
	w.must(w.apply())
	w.wantCalls(t, "a", w.a, "drain w-1")
	w.wantCalls(t, "b", w.b)
}

// Nodes without a record of their role in the engine change with a warning.
func TestGoOverWithoutRecord(t *testing.T) {
	t.Parallel()
	w := newTwoEngines(t)
	w.must(w.session(t.Context(), "forget", func(d *Deployer) error {
		return d.Store.Update(func(s *state.State) error {
			for name, n := range s.Nodes {
				n.Memberships, n.Engine = nil, ""
				s.Nodes[name] = n
			}
			return nil
		})
	}))
	w.use("b", "cp", "w")
	w.must(w.apply())
	w.wantCalls(t, "a", w.a)
	warned := w.warnings()
	want := "w-1: it runs a and changes without a drain, because the state of this computer does not contain its role there"
	if !slices.Contains(warned, want) || len(warned) != 3 {
		t.Errorf("warnings: %q", warned)
	}
}

// Nodes that have no engine any more are drained.
func TestLeaveWithoutNewEngine(t *testing.T) {
	t.Parallel()
	w := newTwoEngines(t)
	w.use("", "cp", "w")
	w.must(w.apply())
	w.wantCalls(t, "a", w.a, "drain cp-1", "drain w-1", "drain w-2")
	if got := w.runs(); got != "cp-1:none w-1:none w-2:none" {
		t.Error(got)
	}
}

// A reboot drains the nodes by the engine that they run, also if the hive has another one.
func TestRebootBeforeGoingOver(t *testing.T) {
	t.Parallel()
	w := newTwoEngines(t)
	w.use("b", "cp", "w")
	w.must(w.reboot(Options{}))
	want := []string{}
	for _, node := range []string{"cp-1", "w-1", "w-2"} {
		want = append(want, "drain "+node, "wait for "+node, "uncordon "+node)
	}
	wantTexts(t, w.a.MemberCalls(), want...)
	w.wantCalls(t, "b", w.b)
}

// A rollback to another engine drains the nodes by the engine that they run, and uncordons them in the other one.
func TestRollBackToAnotherEngine(t *testing.T) {
	t.Parallel()
	w := newTwoEngines(t)
	w.use("b", "cp", "w")
	w.must(w.apply())
	w.b.Registered = w.allReady()
	w.reset()
	w.must(w.rollback(t.Context()))
	w.wantCalls(t, "b", w.b, "drain cp-1", "drain w-1", "drain w-2")
	w.wantCalls(t, "a", w.a, uncordonedAll...)
	if got := w.runs(); got != "cp-1:a w-1:a w-2:a" || w.drainedNodes("a") != "" || w.drainedNodes("b") != "cp-1 w-1 w-2" {
		t.Errorf("%s; drained by a: %s, by b: %s", got, w.drainedNodes("a"), w.drainedNodes("b"))
	}
}

// If a node could not be uncordoned when it came back to its engine, the next run uncordons it, also a run that only sets the system
// of the next boot and so does not observe the cluster.
func TestUncordonedByNextRun(t *testing.T) {
	t.Parallel()
	w := newTwoEngines(t)
	w.use("b", "cp", "w")
	w.must(w.apply())
	w.b.Registered = w.allReady()
	w.use("a", "cp", "w")
	w.a.Refuse = "uncordon"
	if _, err := w.apply(); err == nil || w.drainedNodes("a") != "cp-1 w-1 w-2" {
		t.Errorf("%v, drained %s", err, w.drainedNodes("a"))
	}
	w.a.Refuse = ""
	boot := func(o *Options) { o.Goal = node.Boot }
	w.must(w.apply(boot))
	if w.drainedNodes("a") != "" || w.a.Registered["w-1"].Drained {
		t.Errorf("drained: %s, %v", w.drainedNodes("a"), w.a.Registered)
	}
}

// A run that is killed between the drain and the changes leaves drained nodes; the next run in either direction
// uncordons them or goes on.
func TestGoOverKilled(t *testing.T) {
	t.Parallel()
	w := newTwoEngines(t)
	w.must(w.session(t.Context(), "killed", func(d *Deployer) error {
		return d.Store.Update(func(s *state.State) error {
			for node, status := range w.a.Registered {
				s.RecordDrained(node, "a", true)
				status.Drained = true
				w.a.Registered[node] = status
			}
			return nil
		})
	}))
	w.must(w.apply()) // the hive still has the engine a
	if w.drainedNodes("a") != "" || w.a.Registered["w-1"].Drained {
		t.Errorf("drained: %s, %v; calls %q", w.drainedNodes("a"), w.a.Registered, w.a.Calls)
	}
	w.use("b", "cp", "w")
	w.a.Refuse = "members"
	if _, err := w.apply(); failure.KindOf(err) != failure.Cluster || failure.Hint(err) == "" {
		t.Error(err)
	}
}
