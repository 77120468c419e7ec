package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Write uses no file in $TMPDIR, because it would stay there after a kill -9.
func TestWrite(t *testing.T) {
	tmp, dir := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", tmp)
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(tmp, long, long); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "key")
	if err := os.WriteFile(file, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Write(file, []byte("new")); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	info, _ := os.Stat(file)
	if err != nil || string(data) != "new" || info.Mode().Perm() != 0o600 {
		t.Errorf("%q, %v, %v", data, info.Mode(), err)
	}
	if info, err := os.Stat(tmp); err != nil || info.ModTime().After(long.Add(time.Minute)) {
		t.Errorf("something was in $TMPDIR: %v, %v", info.ModTime(), err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left: %v", entries)
	}
	if err := Write(filepath.Join(dir, "absent", "key"), nil); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "absent/key:") {
		t.Errorf("a folder that is not there: %v", err)
	}
}

// WriteShared keeps the permissions of a file, and leaves those of a new one to the umask.
func TestWriteShared(t *testing.T) {
	before := unix.Umask(0o027)
	defer unix.Umask(before)
	dir := t.TempDir()
	modes := map[string]os.FileMode{"new": 0o640, "private": 0o600, "public": 0o664}
	for name, mode := range modes {
		file := filepath.Join(dir, name)
		if name != "new" {
			if err := errors.Join(os.WriteFile(file, []byte("old"), 0o600), os.Chmod(file, mode)); err != nil {
				t.Fatal(err)
			}
		}
		if err := WriteShared(file, []byte("new")); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(file)
		info, _ := os.Stat(file)
		if err != nil || string(data) != "new" || info.Mode().Perm() != mode {
			t.Errorf("%s: %q, %v, %v", name, data, info.Mode(), err)
		}
	}
}

func TestWriteRefusesIrregularFiles(t *testing.T) {
	dir := t.TempDir()
	other, link, device := filepath.Join(dir, "other"), filepath.Join(dir, "link"), filepath.Join(dir, "device")
	if err := os.WriteFile(other, []byte("theirs"), 0o644); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{link: other, device: "/dev/null"} {
		if err := os.Symlink(to, from); err != nil {
			t.Fatal(err)
		}
	}
	if err := Write(link, []byte("ours")); err != nil {
		t.Fatal(err)
	}
	if data, _ := os.ReadFile(other); string(data) != "theirs" {
		t.Errorf("a link was followed: %q", data)
	}
	if info, err := os.Lstat(link); err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	for _, file := range []string{device, dir} {
		if err := Write(file, nil); err == nil {
			t.Errorf("%s was replaced", file)
		}
	}
}
