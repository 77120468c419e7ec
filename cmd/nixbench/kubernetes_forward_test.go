package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

func TestRemoveAbandoned(t *testing.T) {
	dir := t.TempDir()
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{fmt.Sprintf("%d-1", ended.Process.Pid), fmt.Sprintf("%d-2", os.Getpid()), "other-3"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	removeAbandoned(dir)
	left, _ := filepath.Glob(filepath.Join(dir, "*"))
	if want := []string{filepath.Join(dir, fmt.Sprintf("%d-2", os.Getpid())), filepath.Join(dir, "other-3")}; !slices.Equal(left, want) {
		t.Errorf("%q are left, want %q", left, want)
	}
}
