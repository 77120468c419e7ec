package state

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nixbench/nixbench/nixeval"
)

func TestStateIsBesideTheHive(t *testing.T) {
	top := t.TempDir()
	d, err := Locate(nixeval.Source{File: filepath.Join(top, "hive.nix"), Dir: top}, "demo")
	if err != nil || string(d) != filepath.Join(top, ".nixbench", "demo") {
		t.Fatal(d, err)
	}
	for range 2 { // a second run finds it there
		if err := d.Create(); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(string(d))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, error %v", info.Mode(), err)
	}
	ignore, err := os.ReadFile(filepath.Join(top, ".nixbench", ".gitignore"))
	if err != nil || string(ignore) != "*\n" {
		t.Errorf(".gitignore %q, error %v", ignore, err)
	}
}

// Nix copies such a flake into the store with everything beside it.
func TestStateOfACopiedFlakeIsElsewhere(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_STATE_HOME", home)
	top := t.TempDir()
	a, err := Locate(nixeval.Source{Flake: "path:" + top, Dir: top, Copied: true}, "demo")
	if err != nil || !strings.HasPrefix(string(a), home+"/nixbench/") {
		t.Fatal(a, err)
	}
	b, _ := Locate(nixeval.Source{Flake: "path:/x/" + filepath.Base(top), Dir: "/x/" + filepath.Base(top), Copied: true}, "demo")
	if a == b {
		t.Error("two folders of the same name share their state")
	}
}

func TestAReadOnlyFolderIsNamed(t *testing.T) {
	if os.Getuid() == 0 {
		// Root may write to every other folder.
		if err := Dir("/proc/nixbench/demo").Create(); err == nil || !strings.Contains(err.Error(), "state folder") {
			t.Error(err)
		}
		return
	}
	top := t.TempDir()
	if err := os.Chmod(top, 0o500); err != nil {
		t.Fatal(err)
	}
	if err := Dir(filepath.Join(top, ".nixbench", "demo")).Create(); err == nil || !strings.Contains(err.Error(), "state folder") {
		t.Error(err)
	}
}

// readOnly makes a folder to which even root cannot write, if the file system supports that.
func readOnly(t *testing.T, dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
		return
	}
	const immutable = 0x10 // FS_IMMUTABLE_FL
	set := func(flags int) error {
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		defer f.Close()
		return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags)
	}
	if err := set(immutable); err != nil {
		t.Skipf("no folder can be made immutable: %v", err)
	}
	t.Cleanup(func() {
		if err := set(0); err != nil {
			t.Error(err)
		}
	})
}

func TestAReadOnlyStateFolder(t *testing.T) {
	d := folder(t)
	l := mustLock(t, d, "apply")
	s, err := l.Store()
	if err != nil {
		t.Fatal(err)
	}
	confirm := func(node string) error {
		return s.Update(func(s *State) error { s.Confirm(node, Deployment{Path: "/p"}); return nil })
	}
	if err := confirm("a"); err != nil {
		t.Fatal(err)
	}
	readOnly(t, string(d))
	var f *FolderError
	named := func(err error) {
		t.Helper()
		if !errors.As(err, &f) || !strings.Contains(err.Error(), "state folder "+string(d)) || f.Hint() == "" {
			t.Errorf("%v", err)
		}
	}
	named(confirm("b"))
	if st := s.State(); len(st.Nodes) != 1 {
		t.Errorf("what is not on disk is remembered: %v", st.Nodes)
	}
	if st, err := d.Load(); err != nil || len(st.Nodes) != 1 {
		t.Error(st, err)
	}
}

func TestNewLockInAReadOnlyFolder(t *testing.T) {
	d := folder(t)
	if err := d.Create(); err != nil {
		t.Fatal(err)
	}
	readOnly(t, string(d))
	_, err := d.Lock(context.Background(), Self("apply"))
	var f *FolderError
	if !errors.As(err, &f) || !strings.Contains(err.Error(), "state folder "+string(d)) || f.Hint() == "" {
		t.Error(err)
	}
}
