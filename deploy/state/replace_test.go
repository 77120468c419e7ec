package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/nixbench/nixbench/deploy/durable"
)

// A process that replaces a state is killed before each of its writes. The next process that takes the lock
// finds the old state, or completes the replacement.
func TestKilledReplacement(t *testing.T) {
	data, err := os.ReadFile(used(t).stateFile())
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"state.json": data, "secrets/id_ed25519": []byte("new"), "secrets/hosts/w-2": []byte("new"), "empty": {}, "kubeconfig": nil}
	for kill := 0; ; kill++ {
		d := used(t)
		lock := mustLock(t, d, "state import")
		access := d.AccessFile("kubeconfig")
		if err := d.Write(access, []byte("old")); err != nil {
			t.Fatal(err)
		}
		writes, killed := 0, errors.New("killed")
		write := func(file string, data []byte) error {
			if writes == kill {
				return killed
			}
			writes++
			return d.Write(file, data)
		}
		text, err := json.Marshal(files)
		if err == nil {
			err = write(d.replacementFile(), text)
		}
		if err == nil {
			err = finishReplacement(d, write)
		}
		if err != nil && !errors.Is(err, killed) {
			t.Fatal(err)
		}
		if err := errors.Join(lock.Unlock(), mustLock(t, d, "apply").Unlock()); err != nil {
			t.Fatal(err)
		}
		if replaced := kill > 0; durable.Exists(access) == replaced {
			t.Errorf("killed before write %d: the obsolete file is there: %v", kill, !replaced)
		}
		for name, want := range files {
			got, err := os.ReadFile(filepath.Join(string(d), name))
			if want != nil && (err == nil && bytes.Equal(got, want)) != (kill > 0) {
				t.Errorf("killed before write %d: %s: %q, %v", kill, name, got, err)
			}
		}
		if durable.Exists(d.replacementFile()) {
			t.Errorf("killed before write %d: the file of the replacement is left", kill)
		}
		if loose, err := d.Verify(); err != nil || len(loose) > 0 {
			t.Errorf("killed before write %d: %v, %v", kill, loose, err)
		}
		if err == nil {
			if writes != len(files) { // the replacement and all files but one, which is deleted
				t.Errorf("%d writes", writes)
			}
			return
		}
	}
}

func TestReplace(t *testing.T) {
	d := used(t)
	lock := mustLock(t, d, "state import")
	if err := lock.Replace(map[string][]byte{"secrets/x": []byte("new"), "state.json": nil}); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(string(d), "secrets", "x")); string(data) != "new" || durable.Exists(d.stateFile()) {
		t.Errorf("%q, %v", data, err)
	}
	if err := errors.Join(lock.Unlock(), os.Remove(filepath.Join(string(d), "secrets", "x"))); err != nil {
		t.Fatal(err)
	}
	if err := lock.Replace(map[string][]byte{"secrets/x": []byte("new")}); !errors.Is(err, errUnlocked) || durable.Exists(d.replacementFile()) {
		t.Error(err)
	}
}
