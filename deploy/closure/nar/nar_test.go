package nar

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
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

// Every tree has the NAR that Nix makes.
func TestSameAsNix(t *testing.T) {
	fixture.Require(t, "nix-store")
	root := makeTree(t)
	for _, name := range []string{".", "a", "a-b", "run", "run by group only", "link", "empty folder", "folder/inner/x"} {
		path := filepath.Join(root, name)
		want, err := exec.Command("nix-store", "--dump", path).Output()
		if err != nil {
			t.Fatal(err)
		}
		a, err := New(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(io.NewSectionReader(a, 0, a.Size))
		if err != nil || !bytes.Equal(got, want) || a.Size != int64(len(want)) {
			t.Errorf("%s: %d bytes that differ from Nix's %d, %v", name, a.Size, len(want), err)
		}
	}
}

// Any part can be read without the parts before it.
func TestReadAt(t *testing.T) {
	a, err := New(makeTree(t))
	if err != nil {
		t.Fatal(err)
	}
	whole := make([]byte, a.Size)
	if n, err := a.ReadAt(whole, 0); n != len(whole) || err != nil {
		t.Fatal(n, err)
	}
	for _, size := range []int64{1, 7, 1000, 65_537} {
		for offset := int64(0); offset < a.Size; offset += max(size, a.Size/300) {
			buf := make([]byte, min(size, a.Size-offset))
			if _, err := a.ReadAt(buf, offset); err != nil || !bytes.Equal(buf, whole[offset:offset+int64(len(buf))]) {
				t.Fatalf("%d bytes at %d differ, %v", size, offset, err)
			}
		}
	}
	if n, err := a.ReadAt(make([]byte, 10), a.Size-4); n != 4 || err != io.EOF {
		t.Error(n, err)
	}
	if n, err := a.ReadAt(make([]byte, 10), a.Size); n != 0 || err != io.EOF {
		t.Error(n, err)
	}
}

func TestErrors(t *testing.T) {
	root := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(root, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := New(root); err == nil || !strings.Contains(err.Error(), "pipe is not a file, folder or symlink") {
		t.Errorf("%v", err)
	}
	if _, err := New(filepath.Join(root, "none")); !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
	file := filepath.Join(root, "file")
	os.WriteFile(file, make([]byte, 100), 0o644)
	a, err := New(file)
	if err != nil {
		t.Fatal(err)
	}
	os.Truncate(file, 50)
	if _, err := a.ReadAt(make([]byte, a.Size), 0); err == nil || !strings.Contains(err.Error(), "read "+file) {
		t.Errorf("%v", err)
	}
}
