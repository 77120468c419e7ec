package flux

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// overlay replaces programs that are written in Haskell: the nixpkgs of the tests may lack the list of Haskell packages.
const overlay = `_: old: let other = old.hello // { compiler.bootstrapAvailable = false; }; in { shellcheck = other; shellcheck-minimal = other; pandoc = other; }`

// The packages, and the systems with them, can be instantiated with a real nixpkgs. Nothing is built.
func TestPackages(t *testing.T) {
	nixpkgs := os.Getenv("NIXBENCH_NIXPKGS")
	if nixpkgs == "" {
		t.Skip("needs NIXBENCH_NIXPKGS, the folder of a nixpkgs")
	}
	run := func(argv ...string) string {
		t.Helper()
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig)
		var diag strings.Builder
		cmd.Stderr = &diag
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, diag.String())
		}
		return string(out)
	}
	packages := run("nix-instantiate", "--expr", fmt.Sprintf(`let pkgs = import %s { system = "x86_64-linux"; overlays = [ (%s) ]; };
		in { inherit (pkgs.callPackage ../../modules/flux/packages { }) flux-security flux-core flux-sched; }`, nixpkgs, overlay))
	for _, want := range []string{"-flux-security-0.15.0.drv", "-flux-core-0.88.0.drv", "-flux-sched-0.54.0.drv"} {
		if !strings.Contains(packages, want) {
			t.Errorf("no %s in %s", want, packages)
		}
	}
	var systems []string
	out := run("nix-instantiate", "--eval", "--read-write-mode", "--strict", "--json", "eval.nix", "--attr", "systems", "--arg", "nixpkgs", nixpkgs,
		"--arg", "extraModules", fmt.Sprintf(`[ { boot.isContainer = true; nixpkgs.overlays = [ (%s) ]; } ]`, overlay))
	if err := json.Unmarshal([]byte(out), &systems); err != nil || len(systems) != 2 {
		t.Fatalf("%s: %v", out, err)
	}
	for _, system := range systems {
		if closure := run("nix-store", "--query", "--requisites", system); !strings.Contains(closure, "-flux-core-0.88.0.drv") {
			t.Errorf("%s does not need flux-core", system)
		}
	}
}
