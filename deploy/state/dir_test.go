package state

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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
