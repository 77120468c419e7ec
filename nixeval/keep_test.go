package nixeval

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// An existing root is kept without a program. A link that is not registered as a root, or to another path, is made a root.
func TestKeep(t *testing.T) {
	fixture.Require(t, "nix")
	t.Setenv("NIX_CONFIG", fixture.NixConfig)
	dir := t.TempDir()
	e := New(Options{})
	link, lookalike := filepath.Join(dir, "root"), filepath.Join(dir, "copy")
	for i, text := range []string{"x", "y"} {
		file := filepath.Join(dir, "file")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("nix-store", "--add", file).Output()
		if err != nil {
			t.Fatal(err)
		}
		path := strings.TrimSpace(string(out))
		if i == 0 {
			if err := os.Symlink(path, lookalike); err != nil {
				t.Fatal(err)
			}
		}
		links := map[string]string{link: path, lookalike: path}
		if err := e.Keep(t.Context(), links); err != nil {
			t.Fatal(err)
		}
		roots := registeredRoots()
		if to, _ := os.Readlink(link); to != path || roots[link] != path || roots[lookalike] != path {
			t.Errorf("%s, %s, %s", to, roots[link], roots[lookalike])
		}
		programs := os.Getenv("PATH")
		t.Setenv("PATH", "")
		if err := e.Keep(t.Context(), links); err != nil {
			t.Errorf("existing roots need a program: %v", err)
		}
		if built, err := e.Build(t.Context(), map[string]Closure{"web": {Drv: path + ".drv", Out: path}}, ""); err != nil || len(built) != 1 {
			t.Errorf("what has a root needs a program to be built: %q, %v", built, err)
		}
		t.Setenv("PATH", programs)
	}
}

// A derivation is a root without a build.
func TestKeepDerivation(t *testing.T) {
	fixture.Require(t, "nix-daemon")
	t.Setenv("NIX_CONFIG", fixture.NixConfig)
	out, err := exec.Command("nix-instantiate", "--expr", `derivation { name = "never-built"; system = "x86_64-linux"; builder = "/missing"; }`).Output()
	if err != nil {
		t.Fatal(err)
	}
	drv := strings.TrimSpace(string(out))
	link := filepath.Join(t.TempDir(), "gcroots", "x.drv")
	e := New(Options{})
	if err := e.Keep(t.Context(), map[string]string{link: drv}); err != nil || registeredRoots()[link] != drv {
		t.Errorf("it is no root; %v", err)
	}
	missing := strings.Replace(drv, ".drv", "x.drv", 1)
	if err := e.Keep(t.Context(), map[string]string{link + "2": missing}); err == nil || !strings.Contains(err.Error(), missing+" is not in the local store") {
		t.Errorf("a missing derivation is kept: %v", err)
	}
}
