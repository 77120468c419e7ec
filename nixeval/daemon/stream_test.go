package daemon_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/nixeval/daemon"
	"github.com/nixbench/nixbench/nixeval/daemon/daemontest"
)

func makeTree(t *testing.T) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "tree")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(root, "folder", "inner"), 0o755))
	must(os.MkdirAll(filepath.Join(root, "empty folder"), 0o755))
	for name, size := range map[string]int{"a": 0, "a.b": 1, "a-b": 7, "B": 8, "b": 9, "é": 70_000, "folder/inner/x": 3_000_000, "folder\nline": 5} {
		must(os.WriteFile(filepath.Join(root, name), []byte(strings.Repeat("0123456789", size/10+1)[:size]), 0o644))
	}
	must(os.WriteFile(filepath.Join(root, "run"), []byte("#!/bin/sh\n"), 0o555))
	must(os.WriteFile(filepath.Join(root, "run by group only"), []byte("no"), 0o654))
	must(os.Symlink("../nowhere", filepath.Join(root, "link")))
	must(os.Symlink("..", filepath.Join(root, "link to folder")))
	return root
}

// The daemon gets the NAR that Nix makes.
func TestSameNARAsNix(t *testing.T) {
	fixture.Require(t, "nix-store")
	root := makeTree(t)
	for _, name := range []string{".", "a", "a-b", "run", "run by group only", "link", "empty folder", "folder/inner/x"} {
		path := filepath.Join(root, name)
		want, err := exec.Command("nix-store", "--dump", path).Output()
		if err != nil {
			t.Fatal(err)
		}
		s := &daemontest.Store{}
		started, sent := "", 0
		err = open(t, s).AddPaths([]*daemon.PathInfo{{Path: path, NarSize: uint64(len(want))}}, func(path string) { started += path },
			func(bytes int) { sent += bytes }, func() {})
		if err != nil || !bytes.Equal(s.NAR(path), want) || sent != len(want) || started != path {
			t.Errorf("%s: %d bytes that differ from Nix's %d, %d are reported, %v", name, len(s.NAR(path)), len(want), sent, err)
		}
	}
}

// What cannot be read is an error about the local store, and nothing is added.
func TestUnreadable(t *testing.T) {
	root := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(root, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{root: "pipe is not a file, folder or symlink", filepath.Join(root, "none"): "no such file"} {
		s := &daemontest.Store{}
		err := open(t, s).AddPaths([]*daemon.PathInfo{{Path: path}}, func(string) {}, func(int) {}, func() {})
		if err == nil || !strings.HasPrefix(err.Error(), "read "+path+" from the local store: ") || !strings.Contains(err.Error(), want) || len(s.Added()) > 0 {
			t.Errorf("%v, added %q", err, s.Added())
		}
	}
}
