package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
)

func openStore(t *testing.T, d Dir) *Store {
	t.Helper()
	s, err := mustLock(t, d, "apply").Store()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestUpdatesStay(t *testing.T) {
	d := folder(t)
	s := openStore(t, d)
	when := time.Date(2026, 11, 21, 2, 0, 0, 0, time.UTC)
	intent := Intent{Run: "r1", Node: "a", Step: "activate", Path: "/nix/store/x", Since: when}
	if err := s.Begin(intent); err != nil {
		t.Fatal(err)
	}
	if err := s.Update(func(s *State) error {
		s.RecordBefore("r1", "a", Deployment{Path: "/nix/store/w", Generation: 6, Time: when})
		s.Confirm("a", Deployment{Path: "/nix/store/x", Generation: 7, Run: "r1", Time: when})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := &State{
		Version: version,
		Nodes: map[string]Node{"a": {
			LastConfirmed: &Deployment{Path: "/nix/store/x", Generation: 7, Run: "r1", Time: when},
			Before:        &Deployment{Path: "/nix/store/w", Generation: 6, Run: "r1", Time: when},
			Paths:         []string{"/nix/store/x"},
		}},
		Intents:  []Intent{intent},
		Machines: map[string]Machine{},
	}
	got, err := d.Load()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := s.Finish(intent); err != nil {
		t.Fatal(err)
	}
	if got, err := d.Load(); err != nil || len(got.Intents) != 0 {
		t.Error(got, err)
	}
	info, err := os.Stat(d.stateFile())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}

	failed := errors.New("no")
	if err := s.Update(func(s *State) error { delete(s.Nodes, "a"); return failed }); err != failed {
		t.Error(err)
	}
	if len(s.State().Nodes) != 1 {
		t.Error("a failed update has changed the state")
	}
}

func TestNoUpdateWithoutTheLock(t *testing.T) {
	d := folder(t)
	l := mustLock(t, d, "apply")
	s, err := l.Store()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := s.Begin(Intent{}); !errors.Is(err, errUnlocked) {
		t.Error(err)
	}
	if _, err := l.Store(); !errors.Is(err, errUnlocked) {
		t.Error(err)
	}
	if err := l.CheckHeld(); !errors.Is(err, errUnlocked) {
		t.Error(err)
	}
}

func TestDeploymentToRollBackTo(t *testing.T) {
	s := (&State{}).Clone()
	before := func(want string) {
		t.Helper()
		if got := s.Nodes["a"].Before; got == nil || got.Path != want {
			t.Errorf("%+v, want %s", got, want)
		}
	}
	s.RecordBefore("r1", "a", Deployment{Path: "/1"})
	s.RecordBefore("r1", "a", Deployment{Path: "/2"}) // a rollback within the run
	before("/1")
	s.RecordBefore("r2", "a", Deployment{Path: "/2"})
	before("/2")
	s.Begin(Intent{Run: "r2", Node: "a", Step: "activate"}) // then r2 is killed
	s.RecordBefore("r3", "a", Deployment{Path: "/half"})
	before("/2")
	s.DropOpenIntents("r3", "a")
	s.RecordBefore("r4", "a", Deployment{Path: "/4"})
	before("/4")

	for i := range 15 {
		s.Confirm("a", Deployment{Path: fmt.Sprintf("/%d", i%12)})
	}
	if n := len(s.Nodes["a"].Paths); n != maxPaths || !slices.Contains(s.Nodes["a"].Paths, "/2") || slices.Contains(s.Nodes["a"].Paths, "/4") {
		t.Error(s.Nodes["a"].Paths)
	}
}

func TestIntents(t *testing.T) {
	s := (&State{}).Clone()
	for _, i := range []Intent{{Run: "r1", Node: "a", Step: "copy"}, {Run: "r1", Node: "a", Step: "activate"},
		{Run: "r1", Node: "b", Step: "copy"}, {Run: "r2", Node: "a", Step: "copy"}, {Run: "r2", Node: "a", Step: "copy"}} {
		s.Begin(i)
	}
	if len(s.Intents) != 4 {
		t.Error(s.Intents)
	}
	if left := s.OpenIntents("r2", "a"); len(left) != 2 || left[0].Step != "copy" || left[1].Step != "activate" {
		t.Error(left)
	}
	s.DropOpenIntents("r2", "a")
	s.Finish("r2", "a", "copy")
	if len(s.Intents) != 1 || s.Intents[0].Node != "b" {
		t.Error(s.Intents)
	}
}

// With a thousand nodes at the same time, every update is on disk when it returns.
// Updates that arrive during a write are combined: here all of them arrive during the first write, so
// that the second one writes the rest.
func TestAThousandUpdates(t *testing.T) {
	d := folder(t)
	s := openStore(t, d)
	all, writes := make(chan struct{}), 0
	write := s.put
	s.put = func(st *State) error {
		<-all
		writes++
		return write(st)
	}
	var wg sync.WaitGroup
	for i := range 1000 {
		wg.Go(func() {
			node := fmt.Sprintf("node-%d", i)
			if err := s.Update(func(s *State) error {
				s.Confirm(node, Deployment{Path: "/nix/store/0c5nvzrgq1jhsakkyd7rq9xs5q3yvzw8-nixos-system-" + node, Generation: i, Run: "20261121T015900Z-apply"})
				if len(s.Nodes) == 1000 {
					close(all)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
			if i%100 == 0 {
				if st, err := d.Load(); err != nil || st.Nodes[node].LastConfirmed == nil {
					t.Errorf("%s is not on disk: %v", node, err)
				}
			}
		})
	}
	wg.Wait()
	if st, err := d.Load(); err != nil || len(st.Nodes) != 1000 {
		t.Error(len(st.Nodes), err)
	}
	if writes > 2 {
		t.Errorf("1,000 updates during one write needed %d writes, want 2 at most", writes)
	}
}

func TestDamagedStates(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "cannot be used: unexpected end",
		"\x00\x00\x00":             "cannot be used: invalid character",
		`{"version":3,"nodes":{`:   "cannot be used: unexpected end",
		`{"nodes":{}}`:             "cannot be used: it has no version",
		`{"version":4,"x":1}`:      "it has version 4, and this nixbench reads version 3",
		`{"version":3,"node":{}}`:  `cannot be used: json: unknown field "node"`,
		`{"version":3}{}`:          "cannot be used: ",
		`{"version":3,"nodes":[]}`: "cannot be used: json: cannot unmarshal array",
		`[]`:                       "cannot be used: json: cannot unmarshal array",
	} {
		d := folder(t)
		if err := d.Create(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(d.stateFile(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := d.Load()
		if err == nil || !strings.Contains(err.Error(), d.stateFile()) || !strings.Contains(err.Error(), want) || failure.Hint(err) == "" {
			t.Errorf("%q: %v", text, err)
		}
		if _, err := mustLock(t, d, "apply").Store(); err == nil {
			t.Errorf("%q is opened: %v", text, err)
		}
		if got, err := os.ReadFile(d.stateFile()); err != nil || string(got) != text {
			t.Errorf("%q was replaced by %q, %v", text, got, err)
		}
	}
}

// A process that was killed while it wrote leaves a temporary file beside a complete state.
func TestTemporaryFilesAreRemoved(t *testing.T) {
	d := folder(t)
	l := mustLock(t, d, "apply")
	s, err := l.Store()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Begin(Intent{Run: "r1", Node: "a"}); err != nil {
		t.Fatal(err)
	}
	half, other := filepath.Join(string(d), ".state.json8143"), filepath.Join(string(d), ".mine")
	access, key := filepath.Join(string(d), ".kubeconfig17"), filepath.Join(d.Vault(), ".cluster-ca.json99")
	if err := os.MkdirAll(d.Vault(), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{half, other, access, key} {
		if err := os.WriteFile(f, []byte(`{"vers`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err = l.Store()
	if err != nil || len(s.State().Intents) != 1 {
		t.Fatal(err)
	}
	if durable.Exists(half) || !durable.Exists(other) || durable.Exists(access) || durable.Exists(key) {
		t.Error("swept the wrong files")
	}
	// The pattern matches the names that the library gives them.
	f, err := os.ReadDir(string(d))
	if err != nil || len(f) != 4 {
		t.Error(f, err)
	}
}

func FuzzState(f *testing.F) {
	f.Add([]byte(`{"version":3,"nodes":{"a":{"good":{"path":"/p","run":"r","time":"2026-11-21T02:00:00Z"},"paths":["/p"]}},"intents":[{"run":"r","node":"a","step":"s","since":"2026-11-21T02:00:00Z"}]}`))
	f.Add([]byte(`{"version":3,"nodes":null}`))
	f.Add([]byte(`{"version":-1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var s State
		if DecodeFile("x", data, version, &s) != nil {
			return
		}
		// An accepted state can be changed, written, and read again unchanged.
		c := s.Clone()
		c.Confirm("a", Deployment{Path: "/p"})
		c.RecordBefore("r", "a", Deployment{})
		out, err := json.Marshal(c)
		if err != nil {
			t.Skip(err) // JSON cannot represent the year
		}
		var back State
		if err := DecodeFile("x", out, version, &back); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		again, err := json.Marshal(back.Clone())
		if err != nil || !reflect.DeepEqual(out, again) {
			t.Fatalf("%s\n%s\n%v", out, again, err)
		}
	})
}
