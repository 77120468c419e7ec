package modules

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// withEachNixpkgs runs a test with the mini NixOS, and with the nixpkgs of NIXBENCH_NIXPKGS.
func withEachNixpkgs(t *testing.T, test func(t *testing.T, nixpkgs string)) {
	t.Run("mini", func(t *testing.T) { test(t, fixture.Nixpkgs(t)) })
	t.Run("real", func(t *testing.T) { test(t, realNixpkgs(t)) })
}

// realNixpkgs returns the path of a real nixpkgs, and skips the test if there is none.
func realNixpkgs(t *testing.T) string {
	t.Helper()
	path := os.Getenv("NIXBENCH_NIXPKGS")
	if path == "" {
		t.Skip("NIXBENCH_NIXPKGS is not set; set it to the path of a nixpkgs of 25.05 or later")
	}
	fixture.Require(t, "nix")
	return path
}

// evaluate evaluates an attribute of eval.nix into a value.
func evaluate(t *testing.T, nixpkgs, attribute string, into any) {
	t.Helper()
	file, err := filepath.Abs("eval.nix")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "nix", "eval", "--json", "--impure", "--show-trace", "--expr",
		fmt.Sprintf("(import %s { nixpkgs = %s; }).%s", file, nixpkgs, attribute))
	cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig)
	var diag strings.Builder
	cmd.Stderr = &diag
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%s: nix eval: %v\n%s", attribute, err, lastLines(diag.String(), 12))
		return
	}
	if err := json.Unmarshal(out, into); err != nil {
		t.Fatal(err)
	}
}

func show(value any) string { return fmt.Sprint(value) }

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
