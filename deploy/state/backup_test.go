package state

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// booting returns a state folder after a run that has booted a machine.
func booting(t *testing.T) (Dir, *State) {
	t.Helper()
	d := used(t)
	l := mustLock(t, d, "apply")
	s, err := l.Store()
	if err != nil {
		t.Fatal(err)
	}
	run := filepath.Join(string(d), "runs", "20261121T015900Z-apply")
	err = s.Update(func(s *State) error {
		now := time.Now()
		s.Machines["w-1"] = Machine{Hypervisor: "default", MAC: "52:54:00:00:00:01", HostKey: "ssh-ed25519 AAAA", Created: &now}
		return nil
	})
	if err := errors.Join(err, os.MkdirAll(run, 0o700), d.BackUp(run), l.Unlock()); err != nil {
		t.Fatal(err)
	}
	return d, s.State()
}

// The hint of a state that cannot be used never abandons machines. Following it restores
// everything that was recorded of them.
func TestTheStateOfBootedMachinesIsRestored(t *testing.T) {
	for name, harm := range map[string]func(file string) error{
		"damaged": func(file string) error { return os.WriteFile(file, []byte(`{"version":2,"nod`), 0o600) },
		"empty":   func(file string) error { return os.WriteFile(file, nil, 0o600) },
		"gone":    os.Remove, // as an earlier version's hint advised
	} {
		t.Run(name, func(t *testing.T) {
			d, want := booting(t)
			if err := harm(d.stateFile()); err != nil {
				t.Fatal(err)
			}
			_, err := d.Load()
			var f *FileError
			if !errors.As(err, &f) || f.File != d.stateFile() {
				t.Fatal(err)
			}
			if strings.Contains(f.Hint(), "move it away") {
				t.Errorf("hint: %s", f.Hint())
			}
			_, command, ok := strings.Cut(f.Hint(), ": ")
			command, _, _ = strings.Cut(command, ";")
			if out, err := exec.Command("sh", "-c", command).CombinedOutput(); !ok || err != nil {
				t.Fatalf("%s: %s, %v", command, out, err)
			}
			got, err := d.Load()
			if err != nil || got.Cluster.ID != want.Cluster.ID || got.Machines["w-1"].HostKey != want.Machines["w-1"].HostKey {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	// Without a copy of the state, machines are not abandoned either. Without machines the state may be lost.
	d := used(t)
	if err := os.WriteFile(d.stateFile(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var f *FileError
	if _, err := d.Load(); !errors.As(err, &f) || !strings.Contains(f.Hint(), "do not start without it") {
		t.Error(err)
	}
	if err := os.Remove(d.ClientKey()); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Load(); !errors.As(err, &f) || !strings.Contains(f.Hint(), "or move it away") {
		t.Error(err)
	}
}
