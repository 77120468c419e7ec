package real

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/e2e/lab"
)

// The reference cluster on an empty hypervisor: machines that boot a real NixOS become a control plane and two workers.
func TestCluster(t *testing.T) {
	n := needNixpkgs(t, "--kubernetes", "--nixos")
	image := lab.Image(t, "container", "--kubernetes", "--nixos", "--size", "6G")
	h := newHive(t, lab.Hypervisor(t))
	system := h.firstSystem(n)
	h.writeFile("hive.nix", fmt.Sprintf(`let
  reference = import %[1]s/hive.nix { nixpkgs = %[2]s; modules = %[1]s/modules; };
  machine = {
    image = "%[4]s";
    init = "/usr/sbin/lab-init-kubernetes";
    memory = "3G";
    xml = ''<domain><features><capabilities policy='allow'/></features><devices>
      <hostdev mode='capabilities' type='misc'><source><char>/dev/kmsg</char></source></hostdev>
      <filesystem type='mount' accessmode='passthrough'><source dir='%[5]s'/><target dir='/mnt/nixos'/></filesystem>
    </devices></domain>'';
  };
in reference // {
  cluster = reference.cluster // { hypervisors.default = { uri = "%[6]s"; poolPath = "%[7]s"; }; };
  roles = builtins.mapAttrs (_: role: role // machine) reference.roles;
  defaults = {
    imports = [ reference.defaults %[1]s/e2e/real/machine.nix %[1]s/e2e/real/kubernetes.nix ./settings.nix ];
    nixpkgs.pkgs = %[3]s;
  };
}
`, h.root, n.plain(), n.guestPackages(h.root), image, system, h.l.URIs["lxc"], h.l.PoolPath))
	h.writeFile("settings.nix", "{ }")

	h.run(0, "apply", "--yes")
	h.run(0, "ssh", "control-plane-1", "--", `kubectl --kubeconfig /etc/kubernetes/admin.conf get nodes --no-headers | awk '{ print $1, $2 }' | tr '\n' ';'`).
		says("control-plane-1 Ready;worker-1 Ready;worker-2 Ready;")
	h.run(0, "check")
	h.run(0, "apply").says("3 unchanged")

	// A setting that restarts kubelets, the way back, and a unit that fails on the first node.
	maxPods := func(want string) {
		t.Helper()
		h.run(0, "ssh", "control-plane-1", "--", `kubectl --kubeconfig /etc/kubernetes/admin.conf get nodes -o jsonpath='{.items[*].status.capacity.pods}'`).says(want)
	}
	h.writeFile("settings.nix", `{ nixbench.kubernetes.settings.kubelet.maxPods = 90; }`)
	h.run(0, "apply", "--activator", "nixos-rebuild").says("3 switched")
	maxPods("90 90 90")
	h.run(0, "rollback", "--yes").says("3 switched")
	maxPods("110 110 110")
	h.writeFile("settings.nix", `{
		nixbench.kubernetes.settings.kubelet.maxPods = 80;
		systemd.services.bad = { wantedBy = [ "multi-user.target" ]; serviceConfig = { Type = "oneshot"; ExecStart = "/bin/sh -c false"; }; };
	}`)
	h.run(8, "apply").says("control-plane-1 rolled back: unit bad.service failed", "1 rolled-back, 2 skipped")
	maxPods("110 110 110")
	h.run(0, "reboot", "--on", "worker-1", "--yes").says("1 rebooted")
	h.run(0, "check")
	h.run(0, "destroy", "--yes")
}

// firstSystem writes the file system of the machines' first system to a folder: its store paths, their registration and
// the system profile.
func (h *hive) firstSystem(n nixpkgs) string {
	h.Helper()
	command := func(name string, args ...string) string {
		h.Helper()
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			h.Fatalf("%s: %v", strings.Join(cmd.Args, " "), err)
		}
		return strings.TrimSpace(string(out))
	}
	toplevel := command("nix-build", "--no-out-link", filepath.Join(h.root, "e2e/real/system.nix"),
		"--arg", "nixpkgs", n.folder, "--arg", "switch", n.switcher, "--argstr", "guest", n.guest)
	paths := strings.Fields(command("nix-store", "--query", "--requisites", toplevel))
	folder := h.TempDir()
	for _, dir := range []string{"nix/store", "nix/var/nix/profiles"} {
		if err := os.MkdirAll(filepath.Join(folder, dir), 0o755); err != nil {
			h.Fatal(err)
		}
	}
	command("cp", append(append([]string{"-a"}, paths...), filepath.Join(folder, "nix/store"))...)
	if err := os.WriteFile(filepath.Join(folder, "nix-path-registration"), []byte(command("nix-store", append([]string{"--dump-db"}, paths...)...)+"\n"), 0o644); err != nil {
		h.Fatal(err)
	}
	for link, target := range map[string]string{"system": "system-1-link", "system-1-link": toplevel} {
		if err := os.Symlink(target, filepath.Join(folder, "nix/var/nix/profiles", link)); err != nil {
			h.Fatal(err)
		}
	}
	return folder
}
