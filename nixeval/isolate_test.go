package nixeval

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	diff "github.com/google/go-cmp/cmp"
)

// fakeNix replaces `nix eval` for instantiate. Like Nix, it fails for every chunk that contains one
// of the bad units. It counts how often each unit is evaluated.
type fakeNix struct {
	bad   []string
	text  string            // the error of each bad unit; empty: a text with its name
	texts map[string]string // the errors of single units
	delay time.Duration

	mu          sync.Mutex
	evaluations map[string]int
	running     int
	maxRunning  int
	chunks      []int // numbers of units per process
}

var instantiateRE = regexp.MustCompile(`instantiate \(builtins.fromJSON "\[((?:[^]])*)\]"`)

func (f *fakeNix) run(ctx context.Context, c Command) ([]byte, error) {
	m := instantiateRE.FindStringSubmatch(strings.Join(c.Argv, " "))
	if m == nil {
		return nil, fmt.Errorf("no test expected %q", c.Argv[:3])
	}
	units := strings.Split(strings.ReplaceAll(m[1], `\"`, ""), ",")
	f.mu.Lock()
	f.running++
	f.maxRunning = max(f.maxRunning, f.running)
	f.chunks = append(f.chunks, len(units))
	for _, u := range units {
		f.evaluations[u]++
	}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.running--
		f.mu.Unlock()
	}()
	select {
	case <-time.After(f.delay):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	var out []string
	for _, u := range units {
		if slices.Contains(f.bad, u) {
			text := cmp.Or(f.texts[u], f.text, u+" is bad")
			c.Stderr(`@nix {"action":"msg","level":0,"msg":"error: ` + text + `","raw_msg":"` + text + `"}`)
			return nil, &exec.ExitError{}
		}
		path := "/nix/store/" + strings.Repeat("0", 32) + "-" + u
		out = append(out, fmt.Sprintf(`%q: {"drv": "%s.drv", "out": "%s", "system": "x"}`, u, path, path))
	}
	return []byte("{" + strings.Join(out, ",") + "}"), nil
}

func fakeEvaluator(f *fakeNix, workers int) *Evaluator {
	f.evaluations = map[string]int{}
	return New(Options{Source: Source{File: "/hive.nix"}, Workers: workers, Run: f.run})
}

func names(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("n%02d", i))
	}
	return out
}

func TestEachUnitIsEvaluatedOnce(t *testing.T) {
	f := &fakeNix{delay: 100 * time.Millisecond} // long enough for all processes to start
	closures, err := fakeEvaluator(f, 3).Instantiate(t.Context(), names(20), nil)
	if err != nil || len(closures) != 20 {
		t.Fatalf("%d closures, error %v", len(closures), err)
	}
	for u, n := range f.evaluations {
		if n != 1 {
			t.Errorf("%s was evaluated %d times", u, n)
		}
	}
	if f.maxRunning != 3 {
		t.Errorf("%d processes at once, want 3", f.maxRunning)
	}
}

func TestChunkSize(t *testing.T) {
	for size, want := range map[int][]int{1: {1, 1, 1, 1, 1, 1, 1}, 3: {1, 2, 2, 2}, Unlimited: {7}} {
		f := &fakeNix{}
		e := fakeEvaluator(f, 2)
		e.ChunkSize = size
		if _, err := e.Instantiate(t.Context(), names(7), nil); err != nil {
			t.Fatal(err)
		}
		if slices.Sort(f.chunks); !slices.Equal(f.chunks, want) {
			t.Errorf("chunks of %d: %v, want %v", size, f.chunks, want)
		}
	}
}

func TestFailingUnitsAreIsolated(t *testing.T) {
	f := &fakeNix{bad: []string{"n03", "n04", "n17"}}
	closures, err := fakeEvaluator(f, 4).Instantiate(t.Context(), names(20), nil)
	var ee *EvalError
	if !errors.As(err, &ee) {
		t.Fatalf("error %v", err)
	}
	got := map[string]string{}
	for u, e := range ee.Units {
		got[u] = e.Error()
	}
	want := map[string]string{"n03": "n03 is bad", "n04": "n04 is bad", "n17": "n17 is bad"}
	if d := diff.Diff(want, got); d != "" {
		t.Error(d)
	}
	if len(closures) != 17 {
		t.Errorf("%d closures, want the 17 others", len(closures))
	}
	if f.evaluations["n06"] != 1 {
		t.Errorf("n06 shares no chunk with a culprit and was evaluated %d times", f.evaluations["n06"])
	}
}

// If all units have the same error, only two units are evaluated alone. If a unit has no error, or
// another one, each unit of a failed chunk is evaluated alone.
func TestSharedErrorEndsSearch(t *testing.T) {
	const text = "input x is missing"
	all := names(20)
	for name, test := range map[string]struct {
		bad         []string
		texts       map[string]string
		evaluations int
	}{
		"shared":              {bad: all, evaluations: 4 + 2},
		"a chunk is good":     {bad: all[5:], evaluations: 4 + 15},
		"the last is good":    {bad: all[:19], evaluations: 4 + 20},
		"a chunk has another": {bad: all[:16], texts: map[string]string{"n15": "n15 is bad"}, evaluations: 4 + 20},
	} {
		for _, workers := range []int{1, 2, 4} {
			f := &fakeNix{bad: test.bad, text: text, texts: test.texts}
			e := fakeEvaluator(f, workers)
			e.ChunkSize = 5
			_, err := e.Instantiate(t.Context(), all, nil)
			var ee *EvalError
			if !errors.As(err, &ee) {
				t.Fatalf("%s: %v", name, err)
			}
			want, got := map[string]string{}, map[string]string{}
			for _, u := range test.bad {
				want[u] = cmp.Or(test.texts[u], text)
			}
			for u, e := range ee.Units {
				got[u] = e.Error()
			}
			if d := diff.Diff(want, got); d != "" {
				t.Errorf("%s: %s", name, d)
			}
			if len(f.chunks) != test.evaluations {
				t.Errorf("%s: chunks %v", name, f.chunks)
			}
		}
	}
}

// A hive cannot pass options to nix-store as paths of derivations.
func TestInstantiateRefusesOptions(t *testing.T) {
	for _, path := range []string{"--post-build-hook", "/nix/store/x", "/tmp/00000000000000000000000000000000-x", "/nix/store/00000000000000000000000000000000-x/../../y"} {
		e := New(Options{Source: Source{File: "/hive.nix"}, Run: func(_ context.Context, c Command) ([]byte, error) {
			if c.Argv[0] != "nix" {
				t.Errorf("%q runs %q", path, c.Argv)
			}
			return json.Marshal(map[string]Closure{"web": {Drv: path, Out: path}})
		}})
		_, err := e.Instantiate(t.Context(), []string{"web"}, nil)
		var failed *EvalError
		if !errors.As(err, &failed) || !strings.Contains(failed.Units["web"].Error(), "is not a store path") {
			t.Errorf("%q: %v", path, err)
		}
		if err := e.Keep(t.Context(), map[string]string{filepath.Join(t.TempDir(), "link"): path}); err == nil || !strings.Contains(err.Error(), "is not a store path") {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func TestInstantiateReturnsCancellationCause(t *testing.T) {
	f := &fakeNix{delay: time.Minute}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("stop")
	time.AfterFunc(20*time.Millisecond, func() { cancel(why) })
	start := time.Now()
	_, err := fakeEvaluator(f, 2).Instantiate(ctx, names(20), nil)
	if !errors.Is(err, why) {
		t.Errorf("error %v, want the cause", err)
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("it took %v to stop", d)
	}
}

func TestInstantiateWithoutNix(t *testing.T) {
	e := New(Options{Source: Source{File: "/hive.nix"}, Workers: 4, Run: func(context.Context, Command) ([]byte, error) {
		return nil, fmt.Errorf("nix: %w", ErrNoNix)
	}})
	if _, err := e.Instantiate(t.Context(), names(20), nil); !errors.Is(err, ErrNoNix) {
		t.Errorf("error %v", err)
	}
}

// Units whose process the kernel has killed, because several processes need too much memory together, are evaluated again,
// one at a time. A unit whose process is killed also alone is reported.
func TestKilledEvaluationsAreRepeatedAlone(t *testing.T) {
	killed := exec.Command("sh", "-c", "kill -9 $$").Run()
	f := &fakeNix{delay: 20 * time.Millisecond}
	e := fakeEvaluator(f, 3)
	run := e.Run
	var running atomic.Int32
	e.Run = func(ctx context.Context, c Command) ([]byte, error) {
		defer running.Add(-1)
		// There is memory for one process, and n05 needs even more.
		if running.Add(1) > 1 || strings.Contains(strings.Join(c.Argv, " "), `n05\"`) {
			return nil, killed
		}
		return run(ctx, c)
	}
	e.ChunkSize = 4
	closures, err := e.Instantiate(t.Context(), names(20), nil)
	var ee *EvalError
	if !errors.As(err, &ee) || len(ee.Units) != 1 || ee.Units["n05"] == nil || !strings.Contains(ee.Units["n05"].Error(), "out of memory") {
		t.Errorf("error %v", err)
	}
	if len(closures) != 19 {
		t.Errorf("%d closures, want 19", len(closures))
	}
}
