package keys

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/state"
)

func TestKeys(t *testing.T) {
	d := state.Dir(filepath.Join(t.TempDir(), ".nixbench", "c"))
	one, err := MakeHostKey(d, "w-1")
	if err != nil {
		t.Fatal(err)
	}
	again, err := MakeHostKey(d, "w-1")
	if err != nil {
		t.Fatal(err)
	}
	two, err := MakeHostKey(d, "w-2")
	if err != nil {
		t.Fatal(err)
	}
	if one.Public != again.Public || one.Public == two.Public || !strings.HasPrefix(one.Public, "ssh-ed25519 ") || strings.Contains(one.Public, "\n") {
		t.Errorf("%q, %q, %q", one.Public, again.Public, two.Public)
	}
	if _, err := MakeClientKey(d); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{"secrets": 0o700, "secrets/hosts": 0o700, "secrets/hosts/w-1": 0o600, "secrets/id_ed25519": 0o600} {
		info, err := os.Stat(filepath.Join(string(d), path))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode().Perm(), err)
		}
	}
	// A damaged key is not replaced, since the machine has its public half. The error does not contain the key.
	if err := os.WriteFile(filepath.Join(hostKeys(d), "w-2"), []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := MakeHostKey(d, "w-2"); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Error(err)
	}
	if err := RemoveHostKey(d, "w-1"); err != nil {
		t.Fatal(err)
	}
	if err := RemoveHostKey(d, "w-1"); err != nil {
		t.Error("a second time:", err)
	}
	if err := RemoveAll(d); err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob(filepath.Join(string(d), "secrets", "*"))
	if len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

// booted returns the state folder of a machine that accepts the client key.
func booted(t *testing.T) state.Dir {
	t.Helper()
	d := state.Dir(filepath.Join(t.TempDir(), ".nixbench", "c"))
	lock, err := d.Lock(t.Context(), state.Self("apply"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	store, err := lock.Store()
	if err == nil {
		err = store.Update(func(s *state.State) error {
			now := time.Now()
			s.Machines["w-1"] = state.Machine{Created: &now}
			return nil
		})
	}
	if _, keyErr := makeKey(d, d.ClientKey(), "nixbench"); errors.Join(err, keyErr) != nil {
		t.Fatal(err, keyErr)
	}
	return d
}

// No other key is generated while machines accept only the lost one.
func TestTheOnlyKeyIsNotReplaced(t *testing.T) {
	for name, harm := range map[string]func(file string) error{
		"damaged": func(file string) error { return os.WriteFile(file, []byte("x"), 0o600) },
		"gone":    os.Remove,
	} {
		d := booted(t)
		if err := harm(d.ClientKey()); err != nil {
			t.Fatal(err)
		}
		_, err := MakeClientKey(d)
		if err == nil || !strings.Contains(err.Error(), d.ClientKey()+" cannot be used") || !strings.Contains(failure.Hint(err), "restore it from a backup") {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range []string{"ssh-keygen", "authorized keys", "nixbench destroy"} {
			if name == "gone" && !strings.Contains(failure.Hint(err), want) {
				t.Errorf("no %q in the hint: %s", want, failure.Hint(err))
			}
		}
		if data, _ := os.ReadFile(d.ClientKey()); len(data) > 1 {
			t.Errorf("%s: another key was made", name)
		}
	}
	d := state.Dir(filepath.Join(t.TempDir(), ".nixbench", "c")) // no machine has been made yet
	if _, err := MakeClientKey(d); err != nil {
		t.Error(err)
	}
}

func TestSecretsAreRemoved(t *testing.T) {
	d := booted(t)
	access, hidden := d.AccessFile("admin.conf"), d.AccessFile(".mine")
	for _, file := range []string{access, hidden} {
		if err := d.Write(file, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := RemoveSecrets(d, "admin.conf", "absent.conf"); err != nil || durable.Exists(access) || !durable.Exists(hidden) {
		t.Errorf("%v: the access file is there: %v, another file: %v", err, durable.Exists(access), durable.Exists(hidden))
	}
}
