package deploy

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/lab"
)

// Who logs in, and where it is built.
func TestUsersAndBuilders(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.Start(t, 2))
	// Debian keeps the daemon's socket to a group, unlike NixOS.
	s.on("m1", "usermod -aG nix-users deploy")

	t.Run("sudo", func(t *testing.T) {
		s := s.in(t)
		s.hive(`m1 = { imports = [ (which "deploy") ]; deployment.targetUser = "deploy";
			deployment.keys.k = { text = "secret"; permissions = "0400"; }; };`)
		s.says(s.run(0, "apply"), "1 switched")
		s.says(s.run(0, "exec", "--", "id", "-un"), "m1 | deploy\n")
		s.says(s.run(0, "exec", "--root", "--", "id", "-un"), "m1 | root\n")
		s.is("m1=deploy")
		if got := s.on("m1", "cat /run/keys/k; stat -c ' %a %U' /run/keys/k"); got != "secret 400 root" {
			t.Errorf("key: %s", got)
		}
		s.settled("m1")
	})

	t.Run("sudo wants a password", func(t *testing.T) {
		s := s.in(t)
		s.hive(`m2 = { imports = [ (which "askpass") ]; deployment.targetUser = "askpass"; deployment.privilegeEscalationCommand = [ "sudo" "-H" "--" ]; };`)
		got := s.run(6, "apply")
		s.says(got, "error: m2: ", "sudo", "wants a password", "no terminal")
		s.saysNot(got, "inspect: m2")
		if got := s.on("m2", "ls -d /etc/which /run/nixbench /var/lib/nixbench 2>/dev/null || :"); got != "" {
			t.Errorf("left on the node: %s", got)
		}
	})

	t.Run("build on target", func(t *testing.T) {
		s := s.in(t)
		s.hive(`m1 = { imports = [ (which "built there") ]; deployment.buildOnTarget = true; environment.etc.nonce.text = "` + t.TempDir() + `"; };`)
		s.run(0, "apply")
		s.is("m1=built there")
		path := s.on("m1", "readlink -f /run/current-system")
		cmd := exec.Command("nix-store", "--check-validity", path)
		cmd.Env = s.env
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Errorf("%s was built here, too %s", path, out)
		}
		s.on("m1", "nix-store --check-validity "+path)
		s.says(s.run(0, "apply"), "1 unchanged")
		s.settled("m1")
	})

	t.Run("nobody home", func(t *testing.T) {
		s := s.in(t)
		s.hive(`m1 = which "deploy"; m2.deployment.targetUser = "nobody"; m3.deployment.targetHost = "m3.invalid";`)
		got := s.run(6, "exec", "--", "true")
		s.says(got, "error: m2: ", "nobody", "error: m3: ", "m3.invalid")
		config, err := os.ReadFile(s.l.SSHConfig())
		if err != nil {
			t.Fatal(err)
		}
		s.write("ssh_config", strings.ReplaceAll(string(config), "UserKnownHostsFile", "UserKnownHostsFile /dev/null #"))
		s.write("hive.nix", strings.ReplaceAll(s.read("hive.nix"), s.l.SSHConfig(), s.dir+"/ssh_config"))
		s.says(s.run(6, "exec", "--on", "m1", "--", "true"), "error: m1: ", "host key", "--accept-new-host-keys")
	})
}
