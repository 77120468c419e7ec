package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The reason for other systems names the file that was changed, or the link that points to another folder.
func TestExplainChange(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	frozen := time.Now().Add(-time.Hour)
	file, link := filepath.Join(dir, "nixpkgs", "lib", "default.nix"), filepath.Join(dir, "link")
	for _, f := range []string{file, filepath.Join(dir, "nixpkgs", "old.nix"), filepath.Join(dir, "nixpkgs", ".git", "index")} {
		if err := os.MkdirAll(filepath.Dir(f), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	age := func(time time.Time, names ...string) {
		for _, name := range names {
			if err := os.Chtimes(filepath.Join(dir, name), time, time); err != nil {
				t.Fatal(err)
			}
		}
	}
	age(frozen.Add(-time.Hour), "nixpkgs", "nixpkgs/lib", "nixpkgs/old.nix", "nixpkgs/lib/default.nix")
	if err := os.Symlink(filepath.Join(dir, "nixpkgs"), link); err != nil {
		t.Fatal(err)
	}
	outside := map[string]string{link: filepath.Join(dir, "nixpkgs")}
	check := func(outside map[string]string, want string) {
		t.Helper()
		if got := explainChange(outside, frozen); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "; undo this, or begin a new sweep with nixbench bench run --new") {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	check(nil, "a file that is not in the sweep's copy of the hive was changed after the sweep was frozen; ")
	check(outside, "a file that is not in the sweep's copy of the hive was changed after the sweep was frozen (a sweep keeps no copy of "+link+"); ")
	age(time.Now(), "nixpkgs/lib/default.nix")
	check(outside, file+" was changed after the sweep was frozen, and a sweep keeps no copy of "+link+"; ")
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	check(outside, link+", of which a sweep keeps no copy, cannot be read: ")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	check(outside, link+", of which a sweep keeps no copy, was "+filepath.Join(dir, "nixpkgs")+" and is now "+dir+"; ")
}
