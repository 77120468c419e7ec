package nixeval

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/event"
)

// fakeBuilder replaces nix-store. The build of a unit takes as long as its closure in times.
type fakeBuilder struct {
	times map[string]time.Duration
	bad   []string // units whose build fails

	mu        sync.Mutex
	began     time.Time
	processes []string // when each process began, and what it builds
	events    []event.Event
}

func (f *fakeBuilder) run(ctx context.Context, c Command) ([]byte, error) {
	if c.Argv[1] == "--check-validity" {
		return []byte(strings.Join(slices.DeleteFunc(slices.Clone(c.Argv[4:]), func(p string) bool { return !slices.Contains(f.bad, strings.TrimPrefix(p, "/nix/store/")) }), "\n")), nil
	}
	var units []string
	var took time.Duration
	for _, a := range c.Argv {
		if unit, ok := strings.CutSuffix(strings.TrimPrefix(a, "/nix/store/"), ".drv"); ok {
			units = append(units, unit)
			took = max(took, f.times[unit])
		}
	}
	f.mu.Lock()
	f.processes = append(f.processes, fmt.Sprintf("%v %s", time.Since(f.began), strings.Join(units, " ")))
	f.mu.Unlock()
	c.Stderr(`@nix {"action":"start","id":1,"level":0,"type":104,"text":"","parent":0,"fields":[]}`)
	c.Stderr(fmt.Sprintf(`@nix {"action":"result","id":1,"type":105,"fields":[0,%d,0,0]}`, len(units)))
	select {
	case <-time.After(took):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	failed := false
	for _, u := range units {
		if slices.Contains(f.bad, u) {
			failed = true
			c.Stderr(fmt.Sprintf(`@nix {"action":"msg","level":0,"msg":"error: builder for '/nix/store/%[1]s.drv' failed","raw_msg":"builder for '/nix/store/%[1]s.drv' failed"}`, "shared"))
		}
	}
	if failed {
		return nil, &exec.ExitError{}
	}
	return nil, nil
}

func (f *fakeBuilder) evaluator() *Evaluator {
	f.began = time.Now()
	return New(Options{Source: Source{File: "/hive.nix"}, Run: f.run, Send: func(e event.Event) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.events = append(f.events, e)
	}})
}

// phases returns the events of the phase and of its progress.
func (f *fakeBuilder) phases() []string {
	var out []string
	for _, e := range f.events {
		out = append(out, fmt.Sprintf("%v %s %d of %d %s", e.Time.Sub(f.began), e.Kind, e.Done, e.Total, e.Text))
	}
	return out
}

func closures(units ...string) map[string]Closure {
	out := map[string]Closure{}
	for _, u := range units {
		out[u] = Closure{Drv: "/nix/store/" + u + ".drv", Out: "/nix/store/" + u}
	}
	return out
}

// Closures that are added in the same moment are built by one process.
func TestBuildsOfOneMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeBuilder{times: map[string]time.Duration{"a": time.Minute}}
		b := f.evaluator().NewBuilds(3, "", nil)
		b.Add(t.Context(), closures("a"))
		time.Sleep(time.Millisecond)
		b.Add(t.Context(), closures("b"))
		time.Sleep(time.Second)
		f.mu.Lock()
		got := slices.Clone(f.processes)
		f.mu.Unlock()
		if want := []string{"50ms a b"}; !slices.Equal(got, want) {
			t.Errorf("processes %q, want %q", got, want)
		}
		if _, err := b.Finish(t.Context(), closures("a", "b", "c")); err != nil {
			t.Error(err)
		}
	})
}

// What is added during a build is built by the next process, and the rest, when everything is evaluated, by another one. All this
// is one phase.
func TestBuilds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeBuilder{times: map[string]time.Duration{"a": 3 * time.Second, "d": 6 * time.Second, "e": time.Second}}
		var early []string
		b := f.evaluator().NewBuilds(5, "", func(built map[string]Closure, err error) {
			early = append(early, fmt.Sprintf("%v %s %v", time.Since(f.began), slices.Sorted(maps.Keys(built)), err))
		})
		b.Add(t.Context(), closures("a"))
		time.Sleep(time.Second)
		b.Add(t.Context(), closures("b"))
		b.Add(t.Context(), closures("c"))
		time.Sleep(4 * time.Second)
		b.Add(t.Context(), closures("a", "b"))
		b.Add(t.Context(), closures("d"))
		time.Sleep(time.Second)
		built, err := b.Finish(t.Context(), closures("a", "b", "c", "d", "e"))
		b.Add(t.Context(), closures("f"))
		if diff := cmp.Diff([]string{"a", "b", "c", "d", "e"}, built); diff != "" || err != nil {
			t.Error(diff, err)
		}
		if diff := cmp.Diff([]string{"50ms a", "3.05s b c", "5.05s d", "11.05s e"}, f.processes); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"3.05s [a] <nil>", "3.05s [b c] <nil>", "11.05s [d] <nil>"}, early); diff != "" {
			t.Error(diff)
		}
		want := []string{"0s phase-start 0 of 5 ", "50ms progress 0 of 1 ", "3.05s progress 0 of 3 ", "5.05s progress 0 of 4 ", "11.05s progress 0 of 5 ", "12.05s phase-end 5 of 5 5 closures"}
		if diff := cmp.Diff(want, f.phases()); diff != "" {
			t.Error(diff)
		}
	})
}

// If all units are evaluated at once, one process builds them, and nothing is reported as built early.
func TestBuildsWithoutAdd(t *testing.T) {
	f := &fakeBuilder{}
	b := f.evaluator().NewBuilds(2, "", func(map[string]Closure, error) { t.Error("built early") })
	if built, err := b.Finish(t.Context(), closures("a", "b")); err != nil || len(built) != 2 || len(f.processes) != 1 {
		t.Error(built, err, f.processes)
	}
	if built, err := f.evaluator().NewBuilds(2, "", nil).Finish(t.Context(), nil); err != nil || built != nil || len(f.processes) != 1 {
		t.Error(built, err, f.processes)
	}
}

// Failures of all batches are one error, which has each derivation once.
func TestBuildsReportAllFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeBuilder{bad: []string{"a", "c"}, times: map[string]time.Duration{"a": time.Second}}
		b := f.evaluator().NewBuilds(4, "", nil)
		b.Add(t.Context(), closures("a", "b"))
		time.Sleep(2 * gatherFor)
		built, err := b.Finish(t.Context(), closures("a", "b", "c", "d"))
		var failed *BuildError
		if !errors.As(err, &failed) || err.Error() != "build failed for a, c" || len(failed.Failures) != 1 {
			t.Errorf("%v, %+v", err, failed)
		}
		if diff := cmp.Diff([]string{"b", "d"}, built); diff != "" {
			t.Error(diff)
		}
	})
}

// If all batches fail for the same reason, the error has this reason once.
func TestBuildsReportAReasonOnce(t *testing.T) {
	fail := func(c Command, text string) ([]byte, error) {
		c.Stderr(fmt.Sprintf(`@nix {"action":"msg","level":0,"msg":"error: %[1]s","raw_msg":"%[1]s"}`, text))
		return nil, &exec.ExitError{}
	}
	for _, noDaemon := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeBuilder{}
			e := f.evaluator()
			e.Run = func(_ context.Context, c Command) ([]byte, error) {
				if c.Argv[1] == "--check-validity" && !noDaemon {
					return []byte(strings.Join(c.Argv[4:], "\n")), nil
				}
				time.Sleep(time.Second)
				return fail(c, "cannot connect")
			}
			b := e.NewBuilds(2, "", nil)
			b.Add(t.Context(), closures("a"))
			time.Sleep(2 * gatherFor)
			_, err := b.Finish(t.Context(), closures("a", "b"))
			var failed *BuildError
			if !noDaemon && (!errors.As(err, &failed) || err.Error() != "build failed for a, b" || len(failed.Failures) != 1) {
				t.Errorf("%v, %+v", err, failed)
			}
			if noDaemon && strings.Count(err.Error(), "cannot connect") != 1 {
				t.Error(err)
			}
		})
	}
}

// A build that is cancelled ends at once, and what was added is not built.
func TestBuildsAreCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeBuilder{times: map[string]time.Duration{"a": time.Hour}}
		ctx, cancel := context.WithCancel(t.Context())
		b := f.evaluator().NewBuilds(2, "", func(map[string]Closure, error) { t.Error("built early") })
		b.Add(ctx, closures("a"))
		time.Sleep(gatherFor)
		synctest.Wait()
		b.Add(ctx, closures("b"))
		cancel()
		built, err := b.Finish(ctx, nil)
		if len(built) > 0 || !errors.Is(err, context.Canceled) || time.Since(f.began) > gatherFor || len(f.processes) != 1 {
			t.Error(built, err, f.processes)
		}
	})
}

// Instantiate hands over what is evaluated while other units are not, and never the last part.
func TestInstantiateCallsEach(t *testing.T) {
	f := &fakeNix{bad: []string{"n03"}}
	e := fakeEvaluator(f, 1)
	e.ChunkSize = 2
	var parts []string
	each := func(part map[string]Closure) {
		parts = append(parts, strings.Join(slices.Sorted(maps.Keys(part)), " "))
	}
	if all, err := e.Instantiate(t.Context(), names(6)[4:], each); err != nil || len(all) != 2 || len(parts) > 0 {
		t.Error(all, err, parts)
	}
	all, err := e.Instantiate(t.Context(), names(6), each)
	var failed *EvalError
	if !errors.As(err, &failed) || len(all) != 5 {
		t.Error(all, err)
	}
	slices.Sort(parts)
	if diff := cmp.Diff([]string{"n00 n01", "n02", "n04 n05"}, parts); diff != "" {
		t.Error(diff)
	}
}
