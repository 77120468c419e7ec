package flake

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/lab"
)

// An unchanged template of `nix flake init` is deployed to machines by `nix run .#deploy`. The package's
// stand-in runs the real nixbench, and OpenSSH's configuration has the addresses of the hosts.
func TestDeployToMachines(t *testing.T) {
	t.Parallel()
	l := lab.Start(t, 2, "--names", "web,db")
	w := newWorld(t)
	w.buildProgram()
	dir := w.initTemplate("existing-machines")
	config := l.Aliases(t, map[string]string{"web.example.org": "web", "db.example.org": "db"})

	deploy := func(code int, want string, args ...string) {
		t.Helper()
		cmd := l.Command(t.Context(), "nix", append([]string{"run", ".#deploy", "--"}, args...)...)
		cmd.Dir, cmd.Env = dir, append(w.env(), "SSH_CONFIG_FILE="+config)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) || cmd.ProcessState.ExitCode() != code || !strings.Contains(string(out), want) {
			t.Fatalf("deploy %s: %v, want exit code %d and %q:\n%s", strings.Join(args, " "), err, code, want, out)
		}
	}
	deploy(0, "1 switched", "--on", "@front")
	ask := `for i in {1..50}; do exec 3<>"/dev/tcp/$0/80" && break; sleep 0.1; done; printf 'GET / HTTP/1.0\r\n\r\n' >&3; tail -n 1 <&3`
	if got, err := l.Command(t.Context(), "bash", "-c", ask, l.Machine("web").IP).Output(); string(got) != "Welcome to web.\n" {
		t.Errorf("the web server answers %q, %v", got, err)
	}
	if got := l.Run(t, "db", "ls /nix/var/nix/profiles"); strings.Contains(got, "system") {
		t.Errorf("db was deployed, too: %s", got)
	}
	deploy(0, "1 switched, 1 unchanged")
	deploy(0, "2 unchanged")

	// A change of the hive that changes the system of only one machine.
	hive := filepath.Join(dir, "hive.nix")
	text, err := os.ReadFile(hive)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), "allowedTCPPorts = [ 80 ]", "allowedTCPPorts = [ 80 443 ]", 1)
	if err := os.WriteFile(hive, []byte(changed), 0o644); err != nil || changed == string(text) {
		t.Fatal("the template has no port 80:", err)
	}
	deploy(0, "1 switched, 1 unchanged")

	applyConfigurations(t, l, w)

	deploy(2, "no such node", "--on", "nosuch")
	l.Run(t, "db", "systemd-run --quiet --on-active=5s systemctl start ssh; systemctl stop ssh")
	deploy(6, "1 switched, 1 failed")
}

// A flake that has only nixosConfigurations is applied to the same machines: one by its name in OpenSSH's configuration,
// the other by the options that the flake's module declares, with a key.
func applyConfigurations(t *testing.T, l *lab.Lab, w *world) {
	dir := w.TempDir()
	w.write(dir, "flake.nix", `{
  inputs.nixpkgs.url = "path:`+w.nixpkgs+`";
  inputs.nixbench = { url = "path:`+w.flake+`"; inputs.nixpkgs.follows = "nixpkgs"; };
  outputs = { nixpkgs, nixbench, ... }:
    let
      system = name: module: nixpkgs.lib.nixosSystem {
        modules = [
          module
          {
            nixpkgs.hostPlatform = "x86_64-linux";
            networking.hostName = name;
            services.openssh.enable = true;
            boot.loader.grub.device = "/dev/sda";
            fileSystems."/".device = "/dev/disk/by-label/nixos";
            fileSystems."/".fsType = "ext4";
            system.stateVersion = "25.05";
            environment.etc."configured".text = "by the flake";
          }
        ];
      };
    in
    {
      nixosConfigurations.front = system "web" { };
      nixosConfigurations.back = system "db" {
        imports = [ nixbench.nixosModules.deployment ];
        deployment = { targetHost = "db.example.org"; tags = [ "store" ]; keys.password.text = "hunter2"; };
      };
    };
}
`)
	config := l.Aliases(t, map[string]string{"front": "web", "db.example.org": "db"})
	apply := func(want ...string) {
		t.Helper()
		cmd := l.Command(t.Context(), filepath.Join(w.home, "bin/nixbench"), "apply", "--flake", ".", "--yes")
		cmd.Dir, cmd.Env = dir, append(w.env(), "SSH_CONFIG_FILE="+config)
		out, err := cmd.CombinedOutput()
		for _, text := range want {
			if err != nil || !strings.Contains(string(out), text) {
				t.Fatalf("apply: %v, want %q:\n%s", err, text, out)
			}
		}
	}
	apply("2 switched", "do not declare deployment.targetHost: front\n")
	for _, name := range []string{"web", "db"} {
		if got := l.Run(t, name, "cat /etc/configured"); got != "by the flake" {
			t.Errorf("/etc/configured on %s is %q", name, got)
		}
	}
	if got := l.Run(t, "db", "cat /run/keys/password"); got != "hunter2" {
		t.Errorf("the key on db is %q", got)
	}
	apply("2 unchanged")
}
