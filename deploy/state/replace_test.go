package state

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nixbench/nixbench/deploy/durable"
)

// A process that replaces a state is killed before each of its writes. The next process that takes the lock
// finds the old state, or completes the replacement.
func TestKilledReplacement(t *testing.T) {
	files := map[string]string{"state.json": "", "secrets/id_ed25519": "new", "secrets/hosts/w-2": "new", "runs/20260102T030405Z/run.json": "{}"}
	data, err := os.ReadFile(used(t).stateFile())
	if err != nil {
		t.Fatal(err)
	}
	files["state.json"] = string(data)
	for kill := 0; ; kill++ {
		d := used(t)
		lock := mustLock(t, d, "state import")
		access := d.AccessFile("kubeconfig")
		for _, err := range []error{d.Write(access, []byte("old")), os.Mkdir(string(d.Staging()), 0o700)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for name, text := range files {
			file := filepath.Join(string(d.Staging()), name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		writes, killed := 0, errors.New("killed")
		err := replaceFiles(lock, []string{"kubeconfig"}, func(file string, data []byte) error {
			if writes == kill {
				return killed
			}
			writes++
			return durable.Write(file, data)
		})
		if err != nil && !errors.Is(err, killed) {
			t.Fatal(err)
		}
		if err := errors.Join(lock.Unlock(), mustLock(t, d, "apply").Unlock()); err != nil {
			t.Fatal(err)
		}
		if replaced := kill > 0; durable.Exists(access) == replaced {
			t.Errorf("killed before write %d: the obsolete file is there: %v", kill, !replaced)
		}
		for _, name := range slices.Sorted(maps.Keys(files)) {
			got, _ := os.ReadFile(filepath.Join(string(d), name))
			if (string(got) == files[name]) != (kill > 0) {
				t.Errorf("killed before write %d: %s: %q", kill, name, got)
			}
		}
		if durable.Exists(string(d.Staging())) || durable.Exists(committedFolder(d)) {
			t.Errorf("killed before write %d: files of the replacement are left", kill)
		}
		if loose, err := d.Verify(); err != nil || len(loose) > 0 {
			t.Errorf("killed before write %d: %v, %v", kill, loose, err)
		}
		if err == nil {
			if writes != len(files)+1 {
				t.Errorf("%d writes", writes)
			}
			return
		}
	}
}
