package deploy

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
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

	t.Run("remote builder", func(t *testing.T) {
		s := s.in(t)
		// Nix's own ssh needs to be told of the lab; nothing is built here.
		s.env = append(s.env, "NIX_SSHOPTS=-F "+s.l.SSHConfig(), "NIX_CONFIG="+fixture.NixConfig+"\nmax-jobs = 0")
		hive := func(text string) {
			s.hive(`meta.machinesFile = "` + s.dir + `/machines"; m1 = { imports = [ (which "` + text + `") ];
				environment.etc."where".source = derivation { name = "where"; system = builtins.currentSystem; builder = "/bin/sh";
					args = [ "-c" "read -r host </proc/sys/kernel/hostname; echo $host >$out" ]; nonce = "` + text + t.TempDir() + `"; }; };`)
		}
		for _, scheme := range []string{"ssh-ng", "ssh"} {
			s.write("machines", scheme+"://m2 x86_64-linux - 2 1 - -\n")
			hive(scheme)
			s.run(0, "apply")
			s.is("m1=" + scheme)
			if got := s.on("m1", "cat /etc/where"); got != "m2" {
				t.Errorf("with %s it was built on %s", scheme, got)
			}
			s.settled("m1")
		}
		s.write("machines", "ssh-ng://m3.invalid x86_64-linux - 2 1 - -\n")
		hive("nowhere")
		s.says(s.run(4, "apply"), "m3.invalid")
		s.is("m1=ssh")
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
