package state

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/deploy/failure"
)

// used returns a state folder as a run leaves it.
func used(t *testing.T) Dir {
	t.Helper()
	d := folder(t)
	l := mustLock(t, d, "apply")
	s, err := l.Store()
	if err != nil {
		t.Fatal(err)
	}
	hosts := filepath.Join(string(d), "secrets", "hosts")
	err1 := os.MkdirAll(hosts, 0o700)
	err2 := errors.Join(d.Write(d.ClientKey(), []byte("key")), d.Write(filepath.Join(hosts, "w-1"), []byte("key")))
	err3 := s.Update(func(s *State) error { s.Cluster = NewCluster(); return nil })
	if err := errors.Join(err1, err2, err3, l.Unlock()); err != nil {
		t.Fatal(err)
	}
	if err := d.Verify(); err != nil {
		t.Fatalf("what nixbench makes: %v", err)
	}
	return d
}

func refused(t *testing.T, d Dir, path, why string) {
	t.Helper()
	for name, f := range map[string]func() error{
		"Verify": d.Verify,
		"Create": d.Create,
		"Lock":   func() error { _, err := d.Lock(context.Background(), Self("apply")); return err },
	} {
		err := f()
		if failure.KindOf(err) != failure.Usage || !strings.Contains(err.Error(), path+" is not used") || !strings.Contains(err.Error(), why) || failure.Hint(err) == "" {
			t.Errorf("%s: %v\nwant %s … %s", name, err, path, why)
		}
	}
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// Folders of the state may be symbolic links of the user, so that they can be on another disk.
func TestFoldersMayBeLinks(t *testing.T) {
	d := used(t)
	for _, name := range []string{"runs", "gcroots", "secrets"} {
		path, elsewhere := filepath.Join(string(d), name), filepath.Join(t.TempDir(), name)
		if err := errors.Join(os.MkdirAll(path, 0o700), os.Rename(path, elsewhere), os.Symlink(elsewhere, path)); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Verify(); err != nil {
		t.Error(err)
	}
}

// When run as root, this is the attack: another user creates the folder before nixbench does.
func TestAFolderOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	const otherUser = 65534
	give := func(path string) {
		t.Helper()
		if err := os.Lchown(path, otherUser, otherUser); err != nil {
			t.Fatal(err)
		}
	}
	d := folder(t)
	if err := os.MkdirAll(string(d), 0o777); err != nil {
		t.Fatal(err)
	}
	give(string(d))
	chmod(t, string(d), 0o777)
	refused(t, d, string(d), "it belongs to user 65534")
	if _, err := os.Lstat(d.lockFile()); err == nil {
		t.Error("a lock was made in it all the same")
	}

	d = used(t)
	give(filepath.Dir(string(d)))
	refused(t, d, filepath.Dir(string(d)), "it belongs to user 65534")

	// A link that another user has created.
	d = folder(t)
	elsewhere := t.TempDir()
	if err := os.Symlink(elsewhere, filepath.Dir(string(d))); err != nil {
		t.Fatal(err)
	}
	give(filepath.Dir(string(d)))
	refused(t, d, filepath.Dir(string(d)), "it belongs to user 65534")
	if entries, _ := os.ReadDir(elsewhere); len(entries) > 0 {
		t.Errorf("the link was followed: %v", entries)
	}

	// The owner of the hive's folder is trusted: that user could replace the hive anyway.
	d = used(t)
	hive := filepath.Dir(filepath.Dir(string(d)))
	for _, path := range []string{hive, filepath.Dir(string(d)), string(d), d.stateFile(), d.ClientKey()} {
		give(path)
	}
	if err := d.Verify(); err != nil {
		t.Error(err)
	}
}

func TestAFolderThatOthersCanWriteToIsRefused(t *testing.T) {
	d := used(t)
	chmod(t, filepath.Dir(string(d)), 0o755)
	chmod(t, string(d), 0o777)
	refused(t, d, string(d), "other users can write to it (mode 0777)")

	d = used(t)
	chmod(t, filepath.Dir(string(d)), 0o777)
	refused(t, d, filepath.Dir(string(d)), "other users can write to it")
}

func TestAReadableFolderIsTightened(t *testing.T) {
	d := used(t)
	chmod(t, string(d), 0o755)
	if err := d.Verify(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(string(d)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// A link is never followed when nixbench creates the lock or .gitignore, so that no other file is overwritten.
func TestTheLockIsNoLink(t *testing.T) {
	target := filepath.Join(t.TempDir(), "theirs")
	d := used(t)
	if err := errors.Join(os.WriteFile(target, []byte("precious"), 0o600), os.Remove(d.lockFile()), os.Symlink(target, d.lockFile())); err != nil {
		t.Fatal(err)
	}
	if l, err := d.Lock(context.Background(), Self("apply")); failure.KindOf(err) != failure.StateFolder {
		t.Errorf("%v, %v", l, err)
	}
	if data, _ := os.ReadFile(target); string(data) != "precious" {
		t.Errorf("the target of the link is now %q", data)
	}
	d = folder(t)
	ignore := filepath.Join(filepath.Dir(string(d)), ".gitignore")
	if err := errors.Join(os.MkdirAll(filepath.Dir(ignore), 0o700), os.Symlink(target+"-absent", ignore)); err != nil {
		t.Fatal(err)
	}
	_ = d.Create()
	if _, err := os.Lstat(target + "-absent"); err == nil {
		t.Error("a link was followed")
	}
}
