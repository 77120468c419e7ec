package durable

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Irregular files are refused at once: a pipe without a writer blocks forever, and /dev/zero has no end.
func TestReadRefusesIrregularFiles(t *testing.T) {
	dir := t.TempDir()
	pipe, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", link); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		pipe:        "read " + pipe + ": it is a pipe, not a regular file",
		"/dev/zero": "read /dev/zero: it is a device, not a regular file",
		link:        "it is a device, not a regular file",
		dir:         "it is a folder, not a regular file",
	} {
		done := make(chan error, 1)
		go func() { _, err := Read(file, KeySize); done <- err }()
		select {
		case err := <-done:
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", file, err)
			}
		case <-time.After(5 * time.Second):
			t.Errorf("%s: still reading after 5 s", file)
		}
	}
}

func TestReadIsBounded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("12345678"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := Read(file, 8); err != nil || string(data) != "12345678" {
		t.Errorf("%q, %v", data, err)
	}
	var size *SizeError
	if data, err := Read(file, 7); data != nil || !errors.As(err, &size) || !strings.Contains(err.Error(), file) {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := Read(file+"x", 8); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	// A sparse file of a terabyte uses no disk space.
	if err := os.Truncate(file, 1<<40); err != nil {
		t.Skipf("no large files here: %v", err)
	}
	if _, err := Read(file, 1<<20); !errors.As(err, &size) {
		t.Error(err)
	}
}
