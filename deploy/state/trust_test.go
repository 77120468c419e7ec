package state

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	if loose, err := d.Verify(); len(loose) > 0 || err != nil {
		t.Fatalf("what nixbench makes: %v, %v", loose, err)
	}
	return d
}

func refused(t *testing.T, d Dir, path, why string) {
	t.Helper()
	for name, f := range map[string]func() error{
		"Verify": func() error { _, err := d.Verify(); return err },
		"Create": d.Create,
		"Lock":   func() error { _, err := d.Lock(context.Background(), Self("apply")); return err },
	} {
		err := f()
		var trust *TrustError
		if !errors.As(err, &trust) || trust.Path != path || !strings.Contains(err.Error(), why) || trust.Hint() == "" {
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

// The access files of engines are secret, whatever their names are.
func TestAccessFilesAreSecret(t *testing.T) {
	d := used(t)
	access, hidden, link := d.AccessFile("admin.conf"), d.AccessFile(".mine"), d.AccessFile("kubeconfig")
	for _, file := range []string{access, hidden} {
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	loose, err := d.Verify()
	if err != nil || len(loose) != 1 || loose[0].Path != access || !loose[0].Secret {
		t.Errorf("%v, %v", loose, err)
	}
	if info, err := os.Stat(access); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := os.Symlink("absent", link); err != nil {
		t.Fatal(err)
	}
	refused(t, d, link, "it is a symbolic link")
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
	if loose, err := d.Verify(); len(loose) > 0 || err != nil {
		t.Errorf("%v, %v", loose, err)
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

	for _, part := range []string{"secrets", "secrets/id_ed25519", "secrets/hosts/w-1", "state.json", "lock"} {
		d := used(t)
		give(filepath.Join(string(d), part))
		refused(t, d, filepath.Join(string(d), part), "it belongs to user 65534")
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
	if _, err := d.Verify(); err != nil {
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

	d = used(t)
	chmod(t, filepath.Dir(string(d)), 0o755)
	chmod(t, string(d), 0o755)
	chmod(t, d.stateFile(), 0o666)
	refused(t, d, d.stateFile(), "other users can write to it (mode 0666)")
}

// Links and second hard links are never followed, so that no other file is overwritten.
func TestTheLockIsNoLink(t *testing.T) {
	target := filepath.Join(t.TempDir(), "theirs")
	for name, link := range map[string]func(string, string) error{"link": os.Symlink, "second name": os.Link} {
		d := used(t)
		if err := errors.Join(os.WriteFile(target, []byte("precious"), 0o600), os.Remove(d.lockFile()), link(target, d.lockFile())); err != nil {
			t.Fatal(err)
		}
		l, err := d.Lock(context.Background(), Self("apply"))
		var trust *TrustError
		if !errors.As(err, &trust) || trust.Path != d.lockFile() {
			t.Errorf("%s: %v, %v", name, l, err)
		}
		if data, _ := os.ReadFile(target); string(data) != "precious" {
			t.Errorf("%s: its target is now %q", name, data)
		}
	}
	// A link .gitignore is not followed either.
	d := folder(t)
	ignore := filepath.Join(filepath.Dir(string(d)), ".gitignore")
	if err := errors.Join(os.MkdirAll(filepath.Dir(ignore), 0o700), os.Symlink(target+"-absent", ignore)); err != nil {
		t.Fatal(err)
	}
	_ = d.Create()
	if _, err := os.Lstat(target + "-absent"); err == nil {
		t.Error("a link was followed")
	}
}

func TestLoosenedSecretsAreTightened(t *testing.T) {
	d := used(t)
	secrets := filepath.Join(string(d), "secrets")
	chmod(t, secrets, 0o755)
	chmod(t, d.ClientKey(), 0o644)
	chmod(t, filepath.Join(string(d), "secrets", "hosts", "w-1"), 0o640)
	loose, err := d.Verify()
	if err != nil || len(loose) != 3 {
		t.Fatalf("%v, %v", loose, err)
	}
	for _, l := range loose {
		if l.Secret != (l.Path != secrets) || l.Secret != strings.Contains(l.String(), "it is secret") {
			t.Errorf("%v", l)
		}
	}
	for path, want := range map[string]os.FileMode{secrets: 0o700, d.ClientKey(): 0o600, filepath.Join(string(d), "secrets", "hosts", "w-1"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
	}
	if loose, err := d.Verify(); len(loose) > 0 || err != nil {
		t.Errorf("said again: %v, %v", loose, err)
	}
}
