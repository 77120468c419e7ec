package packages

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// system makes a system with these files in /etc. As in NixOS, they are links, and so is the folder of the units.
func system(t *testing.T, etc, units map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	write := func(folder, name, content string) {
		t.Helper()
		file, link := filepath.Join(dir, "store", folder, name), filepath.Join(dir, folder, name)
		for _, f := range []string{file, link} {
			if err := os.MkdirAll(filepath.Dir(f), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(file, link); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range etc {
		write("1-etc/etc", name, content)
	}
	for name, content := range units {
		write("2-units", name, content)
	}
	for link, target := range map[string]string{"1-etc/etc/systemd/system": "2-units", "1-etc/etc/folder": "store", "etc": "1-etc/etc"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, link)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(dir, target), filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestDiffConfig(t *testing.T) {
	from := system(t, map[string]string{"hosts": "a", "ssh/sshd_config": "b", "old": "c"}, map[string]string{"a.service": "1", "b.service": "1", "c.timer": "1", "x.target.wants/b.service": "1"})
	to := system(t, map[string]string{"hosts": "a2", "ssh/sshd_config": "b", "new/file": "c"}, map[string]string{"a.service": "1", "b.service": "2", "multi-user.target.wants/b.service": "2", "x.target.wants/b.service": "2"})
	units, etc, err := DiffConfig(from, to)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Files{Added: []string{"multi-user.target.wants/b.service"}, Changed: []string{"b.service"}, Removed: []string{"c.timer"}}, units); diff != "" {
		t.Error(diff)
	}
	// The link to another folder has another target: what is in the folder is not compared.
	if diff := cmp.Diff(Files{Added: []string{"new/file"}, Changed: []string{"folder", "hosts"}, Removed: []string{"old"}}, etc); diff != "" {
		t.Error(diff)
	}
	if units, etc, err := DiffConfig(to, to); err != nil || !units.Empty() || !etc.Empty() {
		t.Errorf("the same system: %+v, %+v, %v", units, etc, err)
	}
	if units, etc, err := DiffConfig(t.TempDir(), to); err != nil || len(units.Added) != 4 || len(etc.Added) != 4 {
		t.Errorf("a system without etc: %+v, %+v, %v", units, etc, err)
	}
}

// A link to a file outside of the store is compared as a link: NixOS has /etc/localtime -> /etc/zoneinfo/Europe/Berlin, and
// the file with this path on the computer that runs nixbench is not that of the node.
func TestDiffConfigReadsOnlyTheStore(t *testing.T) {
	outside, store := t.TempDir(), t.TempDir()
	var systems []string
	for _, zone := range []string{"Berlin", "Paris"} {
		file, etc := filepath.Join(outside, zone), filepath.Join(store, zone, "etc")
		if err := os.WriteFile(file, []byte("the same"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(etc, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(file, filepath.Join(etc, "localtime")); err != nil {
			t.Fatal(err)
		}
		systems = append(systems, filepath.Dir(etc))
	}
	_, etc, err := DiffConfig(systems[0], systems[1])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Files{Added: []string{}, Changed: []string{"localtime"}, Removed: []string{}}, etc); diff != "" {
		t.Error(diff)
	}
}

// A large file that is no link is described, too.
func TestDiffLargeFile(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	for system, content := range map[string]string{from: strings.Repeat("a", 2<<20), to: strings.Repeat("b", 2<<20)} {
		if err := os.MkdirAll(filepath.Join(system, "etc"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(system, "etc/large"), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_, etc, err := DiffConfig(from, to)
	if err != nil || !cmp.Equal(etc.Changed, []string{"large"}) {
		t.Errorf("%+v, %v", etc, err)
	}
}

// A large file is not read if it is a link: the links differ, although the contents are equal.
func TestDiffLargeLink(t *testing.T) {
	store := t.TempDir()
	var systems []string
	for _, name := range []string{"a", "b"} {
		system := filepath.Join(store, "system-"+name)
		if err := os.MkdirAll(filepath.Join(system, "etc"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(store, name), make([]byte, 2<<20), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(store, name), filepath.Join(system, "etc/large")); err != nil {
			t.Fatal(err)
		}
		systems = append(systems, system)
	}
	_, etc, err := DiffConfig(systems[0], systems[1])
	if err != nil || !cmp.Equal(etc.Changed, []string{"large"}) {
		t.Errorf("%+v, %v", etc, err)
	}
}
