package nixeval

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// An existing root is kept without a program. A link that is not registered as a root, or to another path, is made a root.
func TestKeep(t *testing.T) {
	fixture.Require(t, "nix")
	t.Setenv("NIX_CONFIG", fixture.NixConfig)
	dir := t.TempDir()
	var ran atomic.Int32 // roots are added at the same time
	e := New(Options{Run: func(ctx context.Context, c Command) ([]byte, error) {
		ran.Add(1)
		return Exec(ctx, c)
	}})
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
		for range 2 {
			if err := e.Keep(t.Context(), map[string]string{link: path, lookalike: path}); err != nil {
				t.Fatal(err)
			}
		}
		roots := registeredRoots()
		if to, _ := os.Readlink(link); to != path || !roots[link] || !roots[lookalike] || int(ran.Load()) != 2*(i+1) {
			t.Errorf("%s, %t, %t, %d programs ran", to, roots[link], roots[lookalike], ran.Load())
		}
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
	if !registeredRoots()[link] || ran != 1 {
		t.Errorf("it is no root, or %d programs ran", ran)
	}
	if err := e.KeepDerivations(t.Context(), map[string]string{link + "2": drv + "x"}); err == nil {
		t.Error("a missing derivation is kept")
	}
}
