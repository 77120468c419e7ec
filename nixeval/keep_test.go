package nixeval

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// An existing root is recognised. A link that is not registered as a root is not.
func TestIsKept(t *testing.T) {
	fixture.Require(t, "nix")
	t.Setenv("NIX_CONFIG", fixture.NixConfig)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("nix-store", "--add", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	path := string(out[:len(out)-1])
	link, lookalike := filepath.Join(dir, "root"), filepath.Join(dir, "copy")
	if err := os.Symlink(path, lookalike); err != nil {
		t.Fatal(err)
	}
	if isRegisteredRoot(link, path) || isRegisteredRoot(lookalike, path) {
		t.Error("kept without a root")
	}
	if out, err := exec.Command("nix-store", "--realise", path, "--add-root", link).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !isRegisteredRoot(link, path) || isRegisteredRoot(link, path+"-other") || isRegisteredRoot(lookalike, path) {
		t.Errorf("%t %t %t", isRegisteredRoot(link, path), isRegisteredRoot(link, path+"-other"), isRegisteredRoot(lookalike, path))
	}
}

// A derivation is a root without a build, and only once.
func TestKeepDerivations(t *testing.T) {
	fixture.Require(t, "nix")
	t.Setenv("NIX_CONFIG", fixture.NixConfig)
	dir := t.TempDir()
	out, err := exec.Command("nix-instantiate", "--expr", `derivation { name = "never-built"; system = "x86_64-linux"; builder = "/missing"; }`).Output()
	if err != nil {
		t.Fatal(err)
	}
	drv := strings.TrimSpace(string(out))
	ran := 0
	e := New(Options{Run: func(ctx context.Context, c Command) ([]byte, error) {
		ran++
		return Exec(ctx, c)
	}})
	link := filepath.Join(dir, "gcroots", "x.drv")
	for range 2 {
		if err := e.KeepDerivations(t.Context(), map[string]string{link: drv}); err != nil {
			t.Fatal(err)
		}
	}
	if !isRegisteredRoot(link, drv) || ran != 1 {
		t.Errorf("it is no root, or %d programs ran", ran)
	}
	if err := e.KeepDerivations(t.Context(), map[string]string{link + "2": drv + "x"}); err == nil {
		t.Error("a missing derivation is kept")
	}
}
