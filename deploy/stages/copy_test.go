package stages

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/enginetest"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/nixeval"
)

// slowWorld is a world with changed systems, in which each unit is evaluated by a process of its own. The evaluation
// of the role slow begins when release is called.
type slowWorld struct {
	*world
	release func()
	fail    func(nixeval.Command) error // returns the error of a command after the release, may be nil
	before  []string                    // the node's effects before the apply under test
}

func newSlowWorld(t *testing.T, roles map[string]int) *slowWorld {
	t.Helper()
	s := &slowWorld{world: newWorld(t, roles)}
	s.chunk = 1
	s.must(s.apply())
	s.revision++
	released := make(chan struct{})
	s.release = sync.OnceFunc(func() { close(released) })
	limit := time.AfterFunc(20*time.Second, s.release)
	t.Cleanup(func() { limit.Stop(); s.release() })
	s.onNix = func(ctx context.Context, c nixeval.Command) error {
		if evaluates(c, "slow") {
			select {
			case <-released:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if s.fail != nil {
			return s.fail(c)
		}
		return nil
	}
	s.before = s.activations()
	return s
}

func evaluates(c nixeval.Command, unit string) bool {
	return c.Argv[1] == "eval" && strings.Contains(c.Argv[len(c.Argv)-1], `h: h.instantiate (builtins.fromJSON "[\"`+unit+`\"`)
}

// builds reports whether a command builds the system of a role.
func builds(c nixeval.Command, unit string) bool {
	return slices.ContainsFunc(c.Argv, func(a string) bool { return strings.HasSuffix(a, "nixos-system-"+unit+".drv") })
}

// activations returns what was activated on all machines.
func (w *world) activations() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for name, m := range w.machines {
		m.mu.Lock()
		for _, e := range m.effects {
			out = append(out, name+" "+e)
		}
		m.mu.Unlock()
	}
	slices.Sort(out)
	return out
}

// copies returns the events of copies as `fast-1 node-start`, and the ends of the phases of evaluation and build.
func (w *world) copies() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, e := range w.events {
		switch {
		case e.Phase == event.Copy && (e.Kind == event.NodeStart || e.Kind == event.NodeEnd):
			out = append(out, e.Node+" "+string(e.Kind))
		case (e.Phase == event.Evaluate || e.Phase == event.Build) && e.Kind == event.PhaseEnd:
			out = append(out, string(e.Phase))
		}
	}
	return out
}

// releaseAfterCopy calls release when the first copy of a node's system has ended, or after a time limit, which fails the test.
func (s *slowWorld) releaseAfterCopy(node string) {
	limit := time.AfterFunc(10*time.Second, func() {
		s.t.Errorf("%s has no copy while another unit is evaluated", node)
		s.release()
	})
	s.t.Cleanup(func() { limit.Stop() })
	first := sync.OnceFunc(func() {
		limit.Stop()
		if now := s.activations(); !cmp.Equal(now, s.before) {
			s.t.Errorf("activated before everything was evaluated: %q", now)
		}
		s.release()
	})
	s.onEvent = func(e event.Event) {
		if e.Kind == event.NodeEnd && e.Phase == event.Copy && e.Node == node {
			first()
		}
	}
}

// A system that is evaluated and built is copied while others are evaluated, once.
func TestEarlyCopy(t *testing.T) {
	t.Parallel()
	for _, goal := range []node.Goal{node.Switch, node.Boot, node.Push} {
		s := newSlowWorld(t, map[string]int{"fast": 1, "slow": 1})
		s.releaseAfterCopy("fast-1")
		results, err := s.apply(func(o *Options) { o.Goal = goal })
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"fast-1 switched", "slow-1 switched"}, outcomes(results)); diff != "" {
			t.Errorf("%s: %s", goal, diff)
		}
		want := []string{"fast-1 node-start", "fast-1 node-end", "evaluate", "build", "slow-1 node-start", "slow-1 node-end"}
		if diff := cmp.Diff(want, s.copies()); diff != "" {
			t.Errorf("%s: %s", goal, diff)
		}
	}
}

// If a late unit cannot be evaluated or built, the error names it, and no node is changed. With --keep-going the other
// nodes are deployed.
func TestEarlyCopyAndLateFailure(t *testing.T) {
	t.Parallel()
	nixFails := func(c nixeval.Command) error {
		c.Stderr(`@nix {"action":"msg","level":0,"msg":"error: it is bad","raw_msg":"it is bad"}`)
		return &exec.ExitError{}
	}
	for name, test := range map[string]struct {
		fail func(nixeval.Command) bool
		want string
	}{
		"evaluation": {func(c nixeval.Command) bool { return evaluates(c, "slow") }, "evaluation failed for slow"},
		"build":      {func(c nixeval.Command) bool { return builds(c, "slow") }, "build failed for slow"},
	} {
		for _, keepGoing := range []bool{false, true} {
			s := newSlowWorld(t, map[string]int{"fast": 1, "slow": 1})
			s.invalid = "nixos-system-slow"
			s.fail = func(c nixeval.Command) error {
				if test.fail(c) {
					return nixFails(c)
				}
				return nil
			}
			s.releaseAfterCopy("fast-1")
			results, err := s.apply(func(o *Options) { o.KeepGoing = keepGoing })
			if err == nil || err.Error() != test.want {
				t.Errorf("%s: %v", name, err)
			}
			fast := "fast-1 skipped"
			if keepGoing {
				fast = "fast-1 switched"
			} else if now := s.activations(); !cmp.Equal(now, s.before) {
				t.Errorf("%s: %q", name, now)
			}
			if diff := cmp.Diff([]string{fast, "slow-1 skipped"}, outcomes(results)); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
	}
}

// An evaluation that fails does not wait for builds and copies that have begun.
func TestEarlyBuildIsStopped(t *testing.T) {
	t.Parallel()
	s := newSlowWorld(t, map[string]int{"fast": 1, "slow": 1})
	evaluateOrWait := s.onNix
	s.onNix = func(ctx context.Context, c nixeval.Command) error {
		if builds(c, "fast") {
			s.release()
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(10 * time.Second):
				t.Error("the build of fast was not stopped")
			}
		}
		return evaluateOrWait(ctx, c)
	}
	s.fail = func(c nixeval.Command) error {
		if evaluates(c, "slow") {
			c.Stderr(`@nix {"action":"msg","level":0,"msg":"error: it is bad","raw_msg":"it is bad"}`)
			return &exec.ExitError{}
		}
		return nil
	}
	var eval *nixeval.EvalError
	if _, err := s.apply(); !errors.As(err, &eval) || errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got := s.copies(); !slices.Equal(got, []string{"evaluate", "build"}) {
		t.Errorf("%q", got)
	}
}

// A build that has failed before an evaluation fails is reported, too.
func TestEarlyBuildFailsBeforeEvaluation(t *testing.T) {
	t.Parallel()
	s := newSlowWorld(t, map[string]int{"fast": 1, "slow": 1})
	s.invalid = "nixos-system-fast"
	s.fail = func(c nixeval.Command) error {
		if c.Argv[1] == "--check-validity" {
			time.AfterFunc(100*time.Millisecond, s.release) // when the build has failed
		}
		if !builds(c, "fast") && !evaluates(c, "slow") {
			return nil
		}
		c.Stderr(`@nix {"action":"msg","level":0,"msg":"error: it is bad","raw_msg":"it is bad"}`)
		return &exec.ExitError{}
	}
	var eval *nixeval.EvalError
	var build *nixeval.BuildError
	if _, err := s.apply(); !errors.As(err, &eval) || !errors.As(err, &build) {
		t.Error(err)
	}
}

// Ctrl-C ends copies that have begun, and the run returns after them.
func TestEarlyCopyIsCancelled(t *testing.T) {
	t.Parallel()
	s := newSlowWorld(t, map[string]int{"fast": 1, "slow": 1})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.machines["fast-1"].onCopy = func(ctx context.Context) int {
		cancel()
		<-ctx.Done()
		return 1
	}
	began := time.Now()
	results, err := s.applyIn(ctx)
	if !errors.Is(err, context.Canceled) || time.Since(began) > 10*time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	wantTexts(t, outcomes(results), "fast-1 skipped", "slow-1 skipped")
	if got := s.copies(); !slices.Contains(got, "fast-1 node-end") {
		t.Errorf("the run has returned before the copy: %q", got)
	}
	if now := s.activations(); !cmp.Equal(now, s.before) {
		t.Errorf("%q", now)
	}
	s.machines["fast-1"].onCopy = nil
	s.release()
	s.must(s.apply())
}

// A copy that fails is repeated when the node is deployed.
func TestEarlyCopyIsRepeated(t *testing.T) {
	t.Parallel()
	s := newSlowWorld(t, map[string]int{"fast": 1, "slow": 1})
	var calls atomic.Int32
	s.machines["fast-1"].onCopy = func(context.Context) int {
		if calls.Add(1) == 1 {
			return 1
		}
		return 0
	}
	s.releaseAfterCopy("fast-1")
	s.must(s.apply())
	if calls.Load() != 2 {
		t.Errorf("copied %d times", calls.Load())
	}
}

// Systems are copied before others are evaluated also if the nodes change in waves, if all of them may be restored, and to
// members of a running cluster, which shortens their drain. A dry activation would not protect them on the node for so long.
func TestCopyBeforeTurn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		options func(*Options)
		prepare func(*slowWorld)
		late    bool
	}{
		"--max-unavailable": {options: func(o *Options) { o.MaxUnavailable, _ = selection.ParseShare("1") }},
		"--rollback all":    {options: func(o *Options) { o.RollbackAll, o.WithoutKeys = true, true }},
		"dry-activate":      {options: func(o *Options) { o.Goal = node.DryActivate }, late: true},
		"member":            {prepare: func(s *slowWorld) { s.useEngine(&enginetest.Fake{}) }},
	} {
		s := newSlowWorld(t, map[string]int{"fast": 1, "slow": 1})
		if test.prepare != nil {
			test.prepare(s)
		}
		want := []string{"fast-1 node-start", "fast-1 node-end", "evaluate", "build"}
		if test.late {
			want = []string{"evaluate", "build"}
			time.AfterFunc(300*time.Millisecond, s.release)
		} else {
			s.releaseAfterCopy("fast-1")
		}
		options := test.options
		if options == nil {
			options = func(*Options) {}
		}
		if _, err := s.apply(options); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := s.copies(); !slices.Equal(got[:len(want)], want) || len(got) != 6 {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// If an engine refuses a version, nothing is activated. A copy that has begun changes nothing.
func TestRefusedVersionAfterCopy(t *testing.T) {
	t.Parallel()
	s := newSlowWorld(t, map[string]int{"fast": 1, "slow": 1})
	p := &versionedEngine{refuse: engine.NewVersionError("2 first", "1 is not 3")}
	s.hive.Units[1].Deployment.Engine = &nixeval.Engine{Kind: "picky", Role: "slow"}
	s.engines = rollout.Engines{"picky": func(engine.Cluster) engine.Engine { return p }}
	s.releaseAfterCopy("fast-1")
	if _, err := s.apply(); err == nil || err.Error() != "1 is not 3" {
		t.Error(err)
	}
	if now := s.activations(); !slices.Equal(now, s.before) {
		t.Errorf("%q", now)
	}
}

// A run that changes nothing builds with one process, however many processes evaluate.
func TestNoEarlyBuildForUnchangedNodes(t *testing.T) {
	t.Parallel()
	s := newSlowWorld(t, map[string]int{"a": 1, "b": 1, "slow": 1})
	s.revision--
	var processes atomic.Int32
	s.onNix = func(_ context.Context, c nixeval.Command) error {
		switch {
		case c.Argv[1] == "--realise":
			processes.Add(1)
		case evaluates(c, "a"), evaluates(c, "slow"):
			time.Sleep(300 * time.Millisecond) // until the nodes are inspected; b is evaluated before
		}
		return nil
	}
	s.must(s.apply())
	if processes.Load() != 1 {
		t.Errorf("%d processes build", processes.Load())
	}
}

// With --parallel, copies count as nodes that are worked on, also while other nodes are deployed.
func TestEarlyCopiesAreLimited(t *testing.T) {
	t.Parallel()
	s := newSlowWorld(t, map[string]int{"fast": 3, "slow": 1})
	var mu sync.Mutex
	busy := map[string]bool{}
	s.onEvent = func(e event.Event) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case e.Phase != event.Copy && e.Phase != event.Activate:
		case e.Kind == event.NodeStart:
			busy[e.Node] = true
			if len(busy) > 1 {
				t.Errorf("at once: %v", busy)
			}
			s.release() // the deployment begins while a copy runs
		case e.Kind == event.NodeEnd:
			delete(busy, e.Node)
		}
	}
	for _, name := range []string{"fast-1", "fast-2", "fast-3"} {
		s.machines[name].onCopy = func(context.Context) int { time.Sleep(500 * time.Millisecond); return 0 }
	}
	s.must(s.apply(func(o *Options) { o.Parallel = 1 }))
}

// If a wave fails, the copies to the nodes of later waves end before the nodes of the run are rolled back.
func TestCopiesEndAfterFailedWave(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"a": 1, "b": 2})
	w.must(w.apply())
	w.revision++
	copying := make(chan struct{})
	begun := sync.OnceFunc(func() { close(copying) })
	for _, name := range []string{"b-1", "b-2"} {
		w.machines[name].onCopy = func(ctx context.Context) int {
			begun()
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Second):
			}
			return 1
		}
	}
	w.machines["a-1"].onCopy = func(context.Context) int { <-copying; return 0 }
	w.machines["a-1"].switchFails = true
	var mu sync.Mutex
	var order []string
	w.onEvent = func(e event.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Kind == event.NodeEnd && e.Phase == event.Copy || e.Kind == event.PhaseEnd && e.Phase == event.Deploy {
			order = append(order, strings.TrimSpace(e.Node+" "+string(e.Kind)))
		}
	}
	results, err := w.apply(func(o *Options) { o.MaxUnavailable, _ = selection.ParseShare("1") })
	if diff := cmp.Diff([]string{"a-1 rolled-back", "b-1 skipped", "b-2 skipped"}, outcomes(results)); diff != "" || err == nil {
		t.Error(diff, err)
	}
	if len(order) < 2 || order[0] != "a-1 node-end" || order[len(order)-1] != "phase-end" {
		t.Errorf("%q", order)
	}
}
