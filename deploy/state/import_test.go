package state

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/deploy/durable"
)

func sorted(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// contents returns the state in d by file name.
func contents(t *testing.T, d Dir) map[string]string {
	t.Helper()
	names, err := Contents(d, false)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, name := range names {
		data, err := ReadContent(d, name)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(data)
	}
	return out
}

// A process that imports a state is killed before each of its writes. The next process that takes the lock
// finds the old state, or finishes the import.
func TestKilledImport(t *testing.T) {
	other := contents(t, used(t))
	finished := 0
	for kill := 0; ; kill++ {
		d := used(t)
		if err := os.WriteFile(filepath.Join(string(d), "kubeconfig"), []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		old := contents(t, d)
		lock := mustLock(t, d, "state import")
		i, err := lock.BeginImport()
		if err != nil {
			t.Fatal(err)
		}
		writes := 0
		killed := errors.New("killed")
		i.write = func(file string, data []byte) error {
			if writes == kill {
				return killed
			}
			writes++
			return durable.Write(file, data)
		}
		for _, name := range sorted(other) {
			if err == nil {
				err = i.Add(name, []byte(other[name]))
			}
		}
		if err == nil {
			err = i.Commit([]string{"digest"})
		}
		if err != nil && !errors.Is(err, killed) {
			t.Fatal(err)
		}
		committed := durable.Exists(importList(d))
		if err := errors.Join(lock.Unlock(), mustLock(t, d, "apply").Unlock()); err != nil {
			t.Fatal(err)
		}
		want := old
		if committed || err == nil {
			want = other
			finished++
		}
		if got := contents(t, d); !slices.Equal(sorted(got), sorted(want)) || got["state.json"] != want["state.json"] ||
			got["secrets/id_ed25519"] != want["secrets/id_ed25519"] {
			t.Errorf("killed before write %d: %v, want %v", kill, sorted(got), sorted(want))
		}
		if durable.Exists(string(importFolder(d))) || durable.Exists(importList(d)) {
			t.Errorf("killed before write %d: files of the import are left", kill)
		}
		if loose, err := d.Verify(); err != nil || len(loose) > 0 {
			t.Errorf("killed before write %d: %v, %v", kill, loose, err)
		}
		if digests, err := Exports(d); err != nil || (len(digests) == 1) != (finished > 0) {
			t.Errorf("killed before write %d: %v, %v", kill, digests, err)
		}
		if err == nil {
			if kill < 8 || finished < 4 {
				t.Errorf("only %d writes, of which %d after the commit", kill, finished)
			}
			return
		}
	}
}

func TestImportRefusesPaths(t *testing.T) {
	d := used(t)
	i, err := mustLock(t, d, "state import").BeginImport()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"", ".", "..", "../x", "secrets/../../x", "/etc/passwd", "secrets//x", "secrets/", ".import.json", "secrets/.x", `secrets\x`,
		"lock", "images.json", "exports.json", "gcroots/web", "benchmarks/x/state.json", "runs", "runs/x", "secrets/forward/kubeconfig"} {
		if err := i.Add(file, nil); err == nil {
			t.Errorf("%q was accepted", file)
		}
	}
	for _, file := range []string{"state.json", "kubeconfig", "secrets/hosts/w-1", "runs/20260102T030405Z/run.json"} {
		if err := i.Add(file, nil); err != nil {
			t.Errorf("%q: %v", file, err)
		}
	}
	if err := i.Add("state.json", nil); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("twice: %v", err)
	}
}
