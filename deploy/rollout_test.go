package deploy

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/nixeval"
)

// fakeEngine is an engine that records its calls and can refuse them.
type fakeEngine struct {
	mu      sync.Mutex
	calls   []string
	refuse  string
	members map[string]engine.Status
	onCall  func(what string)   // called on each call
	blocked map[string]string   // node → work that a drain must not delete
	broken  map[string]string   // node → what is wrong with its own programs
	options engine.DrainOptions // of the last drain

	undrainable string // the node whose drain fails
}

func (s *fakeEngine) call(what, node string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, what+" "+node)
	if s.onCall != nil {
		s.onCall(what + " " + node)
	}
	if s.refuse == what {
		return errors.New("the engine refuses")
	}
	return nil
}

func (s *fakeEngine) Members(context.Context) (map[string]engine.Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse == "members" {
		return nil, errors.New("the engine does not answer")
	}
	return maps.Clone(s.members), nil
}

func (s *fakeEngine) Drain(ctx context.Context, nodes []string, o engine.DrainOptions, report engine.Report) error {
	return s.drain(ctx, "drain", nodes, o, report)
}

func (s *fakeEngine) DrainForRemoval(ctx context.Context, nodes []string, o engine.DrainOptions, report engine.Report) error {
	return s.drain(ctx, "drain for removal", nodes, o, report)
}

// drain marks all nodes before it waits for the first one.
func (s *fakeEngine) drain(ctx context.Context, what string, nodes []string, o engine.DrainOptions, report engine.Report) error {
	s.mu.Lock()
	s.options = o
	s.mu.Unlock()
	s.mark(nodes, true)
	for _, node := range nodes {
		report(node, "drains")
		err := errors.Join(ctx.Err(), s.call(what, node))
		if err == nil && s.undrainable == node {
			err = errors.New("its work does not end")
		}
		if err != nil {
			s.mark(nodes, false)
			return &engine.DrainError{Node: node, Err: err}
		}
	}
	return nil
}

// mark sets or removes the marks of members.
func (s *fakeEngine) mark(nodes []string, drained bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, node := range nodes {
		if m, isMember := s.members[node]; isMember {
			m.Drained = drained
			s.members[node] = m
		}
	}
}

func (s *fakeEngine) CheckDrain(_ context.Context, nodes []string, o engine.DrainOptions) (map[string]engine.DrainCheck, error) {
	out := map[string]engine.DrainCheck{}
	for _, node := range nodes {
		var check engine.DrainCheck
		if work := s.blocked[node]; work != "" && o.BarePods {
			check.Deleted = []engine.DrainItem{{Work: work, Reason: "is bare", Option: "--drain-bare-pods"}}
		} else if work != "" {
			check.Blocked = []engine.DrainItem{{Work: work, Reason: "is bare", Option: "--drain-bare-pods"}}
		}
		out[node] = check
	}
	return out, nil
}

func (s *fakeEngine) CheckDrainForRemoval(ctx context.Context, nodes []string, o engine.DrainOptions) (map[string]engine.DrainCheck, error) {
	return s.CheckDrain(ctx, nodes, o)
}

func (s *fakeEngine) Inspect(_ context.Context, node string) error {
	if why := s.broken[node]; why != "" {
		return errors.New(why)
	}
	return nil
}
func (s *fakeEngine) RemoveMember(_ context.Context, node string) error {
	if err := s.call("remove", node); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.members, node)
	return nil
}
func (s *fakeEngine) Admit(_ context.Context, node string) error { return s.call("admit", node) }

func (s *fakeEngine) WaitReady(_ context.Context, node string, report engine.Report) error {
	report(node, "waits")
	s.mu.Lock()
	m, isMember := s.members[node]
	s.mu.Unlock()
	if isMember && !m.Ready {
		return errors.New("it is not ready")
	}
	return s.call("wait for", node)
}

func (s *fakeEngine) Uncordon(_ context.Context, node string) error {
	if err := s.call("uncordon", node); err != nil {
		return err
	}
	s.mark([]string{node}, false)
	return nil
}

func (s *fakeEngine) Conditions(bool) []check.Condition {
	return []check.Condition{{Name: "well", Probe: func(context.Context) error { return s.call("look", "") }}}
}
func (s *fakeEngine) Adjust(_ context.Context, nodes []string, _ bool) (map[string][]string, error) {
	changes := map[string][]string{}
	for _, node := range nodes {
		changes[node] = []string{"label a=b", "no label c"}
	}
	return changes, s.call("adjust", strings.Join(nodes, " "))
}

// memberCalls returns the calls for single members, in their order.
func (s *fakeEngine) memberCalls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.calls), func(what string) bool { return strings.HasPrefix(what, "adjust") })
}

func tasks(names ...string) []task {
	var out []task
	for _, name := range names {
		name, same := strings.CutPrefix(name, "=")
		out = append(out, task{Task: node.Task{Node: nixeval.Node{Name: name}, Unchanged: same}})
	}
	return out
}

func TestOrderWaves(t *testing.T) {
	e := &fakeEngine{}
	running := clusterState{members: map[string]member{
		"cp-1": {engine: e, Status: engine.Status{OneByOne: true}}, "cp-2": {engine: e, Status: engine.Status{OneByOne: true}},
		"cp-3": {engine: e, Status: engine.Status{OneByOne: true}, recreated: true},
		"w-1":  {engine: e}, "w-2": {engine: e}, "w-3": {engine: e},
	}, desired: map[string]bool{"cp-1": true, "cp-2": true, "cp-3": true, "w-1": true, "w-2": true, "w-3": true, "w-4": true, "w-5": true}}
	empty := running
	empty.members = nil
	two, _ := selection.ParseShare("2")
	for name, c := range map[string]struct {
		l         bool
		todo      []task
		share     selection.Share
		activates bool
		want      string
	}{
		"first creation":          {false, tasks("cp-1", "w-1", "w-2"), selection.Share{}, true, "cp-1 w-1 w-2"},
		"no cluster, in waves":    {false, tasks("a", "=b", "c", "d"), two, true, "b a c | d"},
		"running cluster":         {true, tasks("cp-1", "cp-2", "w-1", "w-2", "w-3"), selection.Share{}, true, " | cp-1 | cp-2 | w-1 | w-2 | w-3"},
		"running, two at a time":  {true, tasks("cp-1", "w-1", "w-2", "w-3"), two, true, " | cp-1 | w-1 w-2 | w-3"},
		"new nodes wait for none": {true, tasks("w-1", "w-4", "w-5"), selection.Share{}, true, "w-4 w-5 | w-1"},
		"unchanged wait for none": {true, tasks("=cp-1", "=w-1", "w-2"), selection.Share{}, true, "cp-1 w-1 | w-2"},
		"nothing is activated":    {true, tasks("cp-1", "w-1"), selection.Share{}, false, "cp-1 w-1"},
		"new nodes in one wave":   {true, tasks("w-1", "w-4", "w-5"), selection.One, true, "w-4 w-5 | w-1"},
		"no engine, no limit":     {true, tasks("web-1", "w-1", "web-2"), selection.Share{}, true, "web-1 web-2 | w-1"},
		"no engine, one per wave": {true, tasks("web-1", "cp-1", "web-2"), selection.One, true, " | cp-1 | web-1 | web-2"},
		"recreated machine":       {true, tasks("cp-2", "cp-3", "w-1"), selection.Share{}, true, "cp-3 | cp-2 | w-1"},
		"nothing to do":           {false, nil, selection.Share{}, true, ""},
	} {
		cluster := empty
		if c.l {
			cluster = running
		}
		var waves []string
		var nodes []nixeval.Node
		same := map[string]bool{}
		for _, t := range c.todo {
			nodes = append(nodes, t.Node)
			same[t.Node.Name] = t.Unchanged
		}
		for _, wave := range cluster.orderWaves(nodes, func(n string) bool { return same[n] || !c.activates }, c.share) {
			var names []string
			for _, n := range wave {
				names = append(names, n.Name)
			}
			waves = append(waves, strings.Join(names, " "))
		}
		if got := strings.Join(waves, " | "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A member is drained before it changes, and uncordoned also after a failed change.
func TestWithDrain(t *testing.T) {
	for name, c := range map[string]struct {
		task    task
		refuse  string
		deploy  error
		want    []string
		wantErr string
	}{
		"success":          {task: tasks("w-1")[0], want: []string{"drain w-1", "deploy", "wait for w-1", "uncordon w-1"}},
		"deploying failed": {task: tasks("w-1")[0], deploy: errors.New("unit failed"), want: []string{"drain w-1", "deploy", "wait for w-1", "uncordon w-1"}, wantErr: "unit failed"},
		"drain failed":     {task: tasks("w-1")[0], refuse: "drain", want: []string{"drain w-1"}, wantErr: "w-1: drain: the engine refuses"},
		"uncordon failed": {task: tasks("w-1")[0], refuse: "wait for", want: []string{"drain w-1", "deploy", "wait for w-1"},
			wantErr: "w-1: the engine refuses"},
		"a killed run had drained it": {task: tasks("=w-1")[0], want: []string{"deploy", "wait for w-1", "uncordon w-1"}},
	} {
		e := &fakeEngine{refuse: c.refuse}
		d := &Deployer{}
		cluster := clusterState{members: map[string]member{"w-1": {engine: e, Status: engine.Status{Drained: c.task.Unchanged}}}}
		err := d.withDrain(t.Context(), cluster, "w-1", c.task.Unchanged, func() error { e.calls = append(e.calls, "deploy"); return c.deploy })
		if diff := cmp.Diff(c.want, e.calls); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if (err == nil) != (c.wantErr == "") || err != nil && !slices.Contains(strings.Split(err.Error(), "\n"), c.wantErr) {
			t.Errorf("%s: %v, want %q", name, err, c.wantErr)
		}
	}
}

// Only nodes that are not members are admitted, and nodes whose machine was recreated.
func TestAdmit(t *testing.T) {
	e := &fakeEngine{}
	r := &run{Deployer: &Deployer{}, Options: Options{Options: node.Options{Goal: node.Switch}}}
	cluster := clusterState{engines: []engine.Engine{e}, members: map[string]member{"cp-1": {engine: e}, "cp-2": {engine: e, recreated: true}}}
	r.admitPending(t.Context(), cluster, []nixeval.Node{{Name: "cp-1"}, {Name: "cp-2"}, {Name: "w-1"}})
	if diff := cmp.Diff([]string{"admit cp-2", "admit w-1"}, e.calls); diff != "" {
		t.Error(diff)
	}
	if err := r.removeStaleMember(t.Context(), cluster.members["cp-2"], "cp-2"); err != nil || e.calls[2] != "remove cp-2" {
		t.Errorf("%v, %q", err, e.calls)
	}
}

// Existing members are adjusted before the conditions are awaited, new ones after that.
func TestVerifyCluster(t *testing.T) {
	hive := &nixeval.Hive{Units: []nixeval.Unit{
		{Name: "w", Deployment: nixeval.Deployment{Engine: &nixeval.Engine{Kind: "sulky"}}}, {Name: "web"},
	}}
	nodes := []nixeval.Node{{Name: "w-1", Unit: "w"}, {Name: "w-2", Unit: "w"}, {Name: "w-3", Unit: "w"}, {Name: "web", Unit: "web"}}
	for name, c := range map[string]struct {
		nodes   []nixeval.Node
		refuse  string
		timeout time.Duration
		goal    node.Goal
		want    []string
		wantErr string
	}{
		"all of them":            {nodes, "", time.Minute, node.Switch, []string{"adjust w-1", "look ", "adjust w-2 w-3"}, ""},
		"only members":           {nodes[:1], "", time.Minute, node.Switch, []string{"adjust w-1", "look "}, ""},
		"only new ones":          {nodes[1:2], "", time.Minute, node.Switch, []string{"look ", "adjust w-2"}, ""},
		"none of them":           {nodes[3:], "", time.Minute, node.Switch, []string{"look "}, ""},
		"no check":               {nodes, "", 0, node.Switch, []string{"adjust w-1", "adjust w-2 w-3"}, ""},
		"nothing is activated":   {nodes, "", time.Minute, node.Boot, nil, ""},
		"the engine fails":       {nodes, "adjust", time.Minute, node.Switch, []string{"adjust w-1", "look ", "adjust w-1 w-2 w-3"}, "the engine refuses"},
		"no check, and it fails": {nodes, "adjust", 0, node.Switch, []string{"adjust w-1"}, "the engine refuses"},
	} {
		e := &fakeEngine{refuse: c.refuse}
		var notes []string
		r := &run{hive: hive, Options: Options{Options: node.Options{Goal: c.goal}, CheckTimeout: c.timeout}, Deployer: &Deployer{Send: func(e event.Event) {
			if e.Level == "note" {
				notes = append(notes, e.Text)
			}
		}}}
		cluster := clusterState{engines: []engine.Engine{e}, members: map[string]member{"w-1": {engine: e}, "w-2": {engine: e, recreated: true}}}
		err := r.verifyCluster(t.Context(), cluster, c.nodes, nil)
		if diff := cmp.Diff(c.want, e.calls); diff != "" {
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
