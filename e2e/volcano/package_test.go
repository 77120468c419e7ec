package volcano

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// The package, the images and the manifest that the module makes of it can be instantiated with a real nixpkgs. Nothing is built.
func TestPackage(t *testing.T) {
	folder := os.Getenv("NIXBENCH_NIXPKGS")
	if folder == "" {
		t.Skip("needs NIXBENCH_NIXPKGS, the folder of a nixpkgs")
	}
	cmd := exec.Command("nix-instantiate", "--expr", fmt.Sprintf(`let
  pkgs = import %[1]s { system = "x86_64-linux"; };
  system = import (%[1]s + "/nixos/lib/eval-config.nix") {
    system = "x86_64-linux";
    specialArgs = { name = "cp-1"; runtime = null; };
    modules = [ ../../modules/kubernetes/control-plane.nix { nixbench.kubernetes.volcano.enable = true; } ];
  };
  cfg = system.config.nixbench.kubernetes;
in [ cfg.volcano.package ] ++ cfg.images ++ cfg.manifests`, folder))
	cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig)
	var diag strings.Builder
	cmd.Stderr = &diag
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, diag.String())
	}
	for _, want := range []string{"-volcano-1.14.4.drv", "-vc-scheduler.tar.gz.drv", "-vc-controller-manager.tar.gz.drv", "-vc-webhook-manager.tar.gz.drv", "-volcano.yaml.drv"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %s in %s", want, out)
		}
	}
}
