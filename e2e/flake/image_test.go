package flake

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// system returns an expression for the configuration of a NixOS that nixbench boots.
func system(w *world, settings string) string {
	return `(import ` + w.nixpkgs + `/nixos/lib/eval-config.nix {
    system = "x86_64-linux";
    specialArgs = { name = "worker"; runtime = null; };
    modules = [
      ` + w.flake + `/modules/guest.nix
      { networking.hostName = ""; system.name = "worker"; system.stateVersion = "25.05"; ` + settings + ` }
    ];
  }).config`
}

// The file system from which a container boots: /sbin/init is the init of the system profile,
// which at first is the image's system. The image has no host key, machine-id or login.
func TestContainerImage(t *testing.T) {
	fixture.Require(t, "debugfs", "resize2fs")
	w := newWorld(t)
	out := w.run(w.flake, "nix-build", "--no-out-link", "-E",
		system(w, `boot.isContainer = true; nixbench.image.size = "300M";`)+".system.build.images.lxc")
	lines := strings.Fields(out)
	image := filepath.Join(lines[len(lines)-1], "disk.raw")
	ask := func(question string) string {
		t.Helper()
		out, err := exec.Command("debugfs", "-R", question, image).CombinedOutput()
		if err != nil {
			t.Fatalf("debugfs: %v\n%s", err, out)
		}
		return string(out)
	}
	for path, want := range map[string]string{
		"/sbin/init":                          `"/nix/var/nix/profiles/system/init"`,
		"/nix/var/nix/profiles/system":        `"system-1-link"`,
		"/nix/var/nix/profiles/system-1-link": "Type: symlink",
		"/nix-path-registration":              "Type: regular",
		"/etc/machine-id":                     "File not found",
		"/etc/ssh/ssh_host_ed25519_key":       "File not found",
		"/var/lib/nixbench/node.json":         "File not found",
		"/nix/var/nix/profiles/system-2-link": "File not found",
		"/root/.ssh/authorized_keys":          "File not found",
	} {
		if got := ask("stat " + path); !strings.Contains(got, want) {
			t.Errorf("%s: want %s, got\n%s", path, want, got)
		}
	}
	if got := ask("ls -p /nix/store"); !strings.Contains(got, "-nixos-system-worker-") {
		t.Errorf("the image does not have the system:\n%s", got)
	}
	if got := ask("stats"); !strings.Contains(got, "Block count:              76800") || !strings.Contains(got, "Filesystem volume name:   nixos") {
		t.Errorf("the file system does not have the size of nixbench.image.size, or the label nixos:\n%s", got)
	}
}

// Guests have the kernel modules, boot loaders and services with which a machine reads its
// credentials at boot.
func TestGuest(t *testing.T) {
	w := newWorld(t)
	get := func(settings, what string) string {
		t.Helper()
		return w.run(w.flake, "nix", "eval", "--impure", "--json", "--expr", "let c = "+system(w, settings)+"; in "+what)
	}
	const vm = `[ c.boot.kernelParams c.boot.initrd.kernelModules c.boot.growPartition c.fileSystems."/".autoResize c.boot.loader.grub.device c.services.qemuGuest.enable ]`
	if got := get("", vm); !strings.Contains(got, `"console=ttyS0,115200","loglevel=4"],["dmi_sysfs","qemu_fw_cfg"],true,true,"/dev/vda",true]`) {
		t.Errorf("a virtual machine: %s", got)
	}
	const boot = `[ c.boot.loader.grub.enable c.boot.loader.systemd-boot.enable (builtins.attrNames c.fileSystems) ]`
	if got := get(`nixbench.guest.firmware = "uefi";`, boot); !strings.Contains(got, `[false,true,["/","/boot"]]`) {
		t.Errorf("UEFI: %s", got)
	}
	const container = `[ c.boot.kernelParams (builtins.attrNames c.fileSystems) c.boot.postBootCommands ]`
	got := get("boot.isContainer = true;", container)
	share, load := strings.Index(got, "mount --make-rshared /"), strings.Index(got, "--load-db")
	if !strings.HasPrefix(got[strings.Index(got, "["):], `[["loglevel=4"],[],`) || share < 0 || load < share {
		t.Errorf("a container: %s", got)
	}
	const login = `[ c.services.openssh.settings.PasswordAuthentication c.services.openssh.hostKeys c.nix.settings.trusted-users ]`
	if got := get("", login); !strings.Contains(got, `[false,[{"path":"/etc/ssh/ssh_host_ed25519_key","type":"ed25519"}],["root"]]`) {
		t.Errorf("logins: %s", got)
	}
	// A user's settings override the defaults.
	if got := get(`services.openssh.settings.PasswordAuthentication = true; boot.loader.grub.device = "/dev/sda"; fileSystems."/".device = "/dev/sda1";`,
		`[ c.services.openssh.settings.PasswordAuthentication c.boot.loader.grub.device c.fileSystems."/".device ]`); !strings.Contains(got, `[true,"/dev/sda","/dev/sda1"]`) {
		t.Errorf("overridden settings: %s", got)
	}
}
