package real

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/lab"
)

// A machine boots a real NixOS, and nixbench deploys to it: apply without changes, with a change and with a failing
// unit, a system that cuts the network, rollback and reboot.
func TestNode(t *testing.T) {
	n := needNixpkgs(t, "--nixos")
	h := newHive(t, lab.Start(t, 1, "--nixos"))
	h.head = fmt.Sprintf(`{
  meta.nixpkgs = %s;
  defaults = { lib, ... }: {
    imports = [ %s/e2e/real/machine.nix ];
    nixpkgs.pkgs = %s;
    deployment.sshOptions = [ "-F" "%s" ];
    system.stateVersion = lib.trivial.release;
    system.switch.inhibitors.engine = lib.mkDefault "1";
  };`, n.plain(), h.root, n.guestPackages(h.root), h.l.SSHConfig)
	write := func(text, more string) {
		t.Helper()
		h.write(fmt.Sprintf(`
  m1 = {
    imports = [ %s/modules/guest.nix ];
    networking.hostName = "m1";
    networking.firewall.enable = false;
    environment.etc.which.text = "%s";
    systemd.services.witness = {
      wantedBy = [ "multi-user.target" ];
      serviceConfig = { Type = "oneshot"; RemainAfterExit = true; ExecStart = "/bin/sh -c 'echo %s >> /run/witness'"; };
    };
    %s
  };`, h.root, text, text, more))
	}
	// check checks which system runs, and that its init process has started all units.
	check := func(text string) {
		t.Helper()
		if got := h.on("m1", "cat /etc/which; systemctl is-system-running --wait || systemctl --failed"); got != text+"running" {
			t.Errorf("the machine has %q, want %srunning", got, text)
		}
	}
	system := func() string {
		return h.on("m1", "readlink -f /run/current-system /nix/var/nix/profiles/system | uniq")
	}

	// Debian becomes NixOS by a reboot.
	write("one", "")
	h.run(0, "apply", "boot")
	h.run(0, "reboot", "--yes")
	check("one")
	if got := h.on("m1", "cat /run/log/stage-2-init.log; readlink -f /run/booted-system; readlink /etc/systemd/system"); !strings.Contains(got, "setting up /etc") ||
		!strings.Contains(got, system()) || !strings.Contains(got, "/etc/static/systemd/system") {
		t.Errorf("stage 2 of NixOS has not booted the machine:\n%s", got)
	}

	h.run(0, "apply").says("1 unchanged")
	write("two", "")
	h.run(0, "apply", "-v").says("stopping the following units: witness.service", "generation 1 → 2")
	check("two")
	if got := h.on("m1", "cat /run/witness"); got != "one\ntwo" {
		t.Errorf("the unit ran as %q", got)
	}
	second := system()

	const bad = `systemd.services.bad = { wantedBy = [ "multi-user.target" ]; serviceConfig = { Type = "oneshot"; ExecStart = "/bin/sh -c false"; }; };`
	write("failing", bad)
	h.run(8, "apply").says("unit bad.service failed", "the node rolled back to "+second)
	check("two")

	// The network is down when the switch has ended, so no client can confirm it.
	write("cut", `systemd.services.cut = { wantedBy = [ "multi-user.target" ]; postStop = "/usr/sbin/ip link set eth0 up";
      serviceConfig = { Type = "oneshot"; RemainAfterExit = true; ExecStart = "/usr/sbin/ip link set eth0 down"; }; };`)
	h.run(8, "apply", "--timeout", "confirm=10s").says("no client could log in to confirm it within 10s; the node rolled back to "+second, "automatically")
	check("two")

	write("three", "")
	h.run(0, "apply").says("→ 3")
	h.run(0, "rollback", "--yes").says("generation 3 → 2")
	check("two")
	if got := system(); got != second {
		t.Errorf("the system is %s after the rollback, want %s", got, second)
	}
	h.run(0, "reboot", "--yes").says("in generation 2")
	check("two")
	h.run(0, "status", "--check")

	// The real checks before a switch refuse it, and nothing is changed.
	const refuses = `system.preSwitchChecks.disk = "echo the disk is too small; false";`
	write("refused", refuses)
	h.run(8, "apply").says("a pre-switch check of the new system failed, and nothing was changed", "Pre-switch check 'disk' failed", "the disk is too small")
	write("inhibited", `system.switch.inhibitors.engine = "2";`)
	h.run(8, "apply").says("a pre-switch check of the new system failed, and nothing was changed", "Pre-switch check 'switchInhibitors' failed", "engine")
	check("two")
	if got := system(); got != second {
		t.Errorf("the system is %s after switches that were refused, want %s", got, second)
	}

	// A key of a user whom the same switch creates. A reboot removes it, since it is in /run.
	const user = `
      users.users.alice.isNormalUser = true;
      deployment.keys.token = { text = "the text"; user = "alice"; group = "users"; permissions = "0400"; };`
	write("keys", user)
	h.run(0, "apply", "dry-activate").says("would stop witness.service; reload dbus.service; start witness.service")
	check("two")
	h.run(0, "apply")
	key := func() {
		t.Helper()
		if got := h.on("m1", "stat -L -c '%U %G %a' /run/keys/token; cat /run/keys/token"); got != "alice users 400\nthe text" {
			t.Errorf("the key is %q", got)
		}
	}
	key()
	h.run(0, "reboot", "--yes")
	check("keys")
	h.run(0, "upload-keys")
	key()

	// The real nixos-rebuild also switches, and reports a unit that fails.
	write("four", "")
	h.run(0, "apply", "--activator", "nixos-rebuild", "-v").says("stopping the following units: nixbench-keys.service, token-key.service, witness.service")
	check("four")
	fourth := system()
	write("failing", bad)
	h.run(8, "apply", "--activator", "nixos-rebuild").says("unit bad.service failed", "the node rolled back to "+fourth)
	check("four")
	h.run(0, "status", "--check")
}
