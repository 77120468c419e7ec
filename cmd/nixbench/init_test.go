package main

import (
	"os"
	"path/filepath"
	"testing"
)

// If init fails, it removes the files that it has written, so that it can be run again.
func TestInitRemovesFilesAfterFailure(t *testing.T) {
	dir := t.TempDir()
	mine := filepath.Join(dir, "mine")
	if err := os.WriteFile(mine, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	// A file and a folder of the same name cannot both exist.
	if err := writeNewFiles(dir, map[string][]byte{"a": []byte("1"), "b": []byte("2"), "b/c": []byte("3")}); err == nil {
		t.Fatal("it did not fail")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "mine" {
		t.Errorf("left: %v, %v", entries, err)
	}
	if err := writeNewFiles(dir, map[string][]byte{"a": []byte("1"), "b/c": []byte("3")}); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "b/c")); err != nil || string(data) != "3" {
		t.Errorf("%q, %v", data, err)
	}
	// A file that another process creates meanwhile, or a dangling link, is not replaced.
	if _, err := createFile(mine, []byte("ours")); err == nil {
		t.Error("a file was replaced")
	}
	if data, err := os.ReadFile(mine); err != nil || len(data) != 0 {
		t.Errorf("%q, %v", data, err)
	}
}
