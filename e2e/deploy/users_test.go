package deploy

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/e2e/lab"
)

// Logins as other users than root, and builds on the node and on remote builders.
func TestUsersAndBuilders(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, lab.Start(t, 2))
	// On Debian, unlike NixOS, only members of a group may use the Nix daemon's socket.
	s.runOn("m1", "usermod -aG nix-users deploy")

	t.Run("sudo", func(t *testing.T) {
		s := s.forSubtest(t)
		s.writeHive(`m1 = { imports = [ (which "deploy") ]; deployment.targetUser = "deploy";
			deployment.keys.k = { text = "secret"; permissions = "0400"; }; };`)
		s.says(s.run(0, "apply"), "1 switched")
		for want, args := range map[string][]string{"deploy\n": {"exec", "--", "id", "-un"}, "root\n": {"exec", "--root", "--", "id", "-un"}} {
			if got := s.run(0, args...).out; got != want {
				t.Errorf("%q printed %q, want %q", args, got, want)
			}
		}
		s.checkWhich("m1=deploy")
		if got := s.runOn("m1", "cat /run/keys/k; stat -c ' %a %U' /run/keys/k"); got != "secret 400 root" {
			t.Errorf("key: %s", got)
		}
		s.checkNothingLeft("m1")
	})

	t.Run("sudo asks for a password", func(t *testing.T) {
		s := s.forSubtest(t)
		s.writeHive(`m2 = { imports = [ (which "askpass") ]; deployment.targetUser = "askpass"; deployment.privilegeEscalationCommand = [ "sudo" "-H" "--" ]; };`)
		got := s.run(6, "apply")
		s.says(got, "error: m2: ", "sudo", "asks for a password", "no terminal")
		s.saysNot(got, "inspect: m2")
		if got := s.runOn("m2", "ls -d /etc/which /run/nixbench /var/lib/nixbench 2>/dev/null || :"); got != "" {
			t.Errorf("left on the node: %s", got)
		}
	})

	t.Run("build on target", func(t *testing.T) {
		s := s.forSubtest(t)
		s.writeHive(`m1 = { imports = [ (which "built there") ]; deployment.buildOnTarget = true; environment.etc.nonce.text = "` + t.TempDir() + `"; };`)
		s.run(0, "apply")
		s.checkWhich("m1=built there")
		path := s.runOn("m1", "readlink -f /run/current-system")
		cmd := exec.Command("nix-store", "--check-validity", path)
		cmd.Env = s.env
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Errorf("%s was built here, too %s", path, out)
		}
		s.runOn("m1", "nix-store --check-validity "+path)
		s.says(s.run(0, "apply"), "1 unchanged")
		s.checkNothingLeft("m1")
	})

	t.Run("remote builder", func(t *testing.T) {
		s := s.forSubtest(t)
		// Nix starts ssh itself, so NIX_SSHOPTS has the lab's configuration. max-jobs = 0 disables
		// local builds.
		s.env = append(s.env, "NIX_SSHOPTS=-F "+s.l.SSHConfig, "NIX_CONFIG="+fixture.NixConfig+"\nmax-jobs = 0")
		hive := func(text string) {
			s.writeHive(`meta.machinesFile = "` + s.dir + `/machines"; m1 = { imports = [ (which "` + text + `") ];
				environment.etc."where".source = derivation { name = "where"; system = builtins.currentSystem; builder = "/bin/sh";
					args = [ "-c" "read -r host </proc/sys/kernel/hostname; echo $host >$out" ]; nonce = "` + text + t.TempDir() + `"; }; };`)
		}
		for _, scheme := range []string{"ssh-ng", "ssh"} {
			s.writeFile("machines", scheme+"://m2 x86_64-linux - 2 1 - -\n")
			hive(scheme)
			s.run(0, "apply")
			s.checkWhich("m1=" + scheme)
			if got := s.runOn("m1", "cat /etc/where"); got != "m2" {
				t.Errorf("with %s it was built on %s", scheme, got)
			}
			s.checkNothingLeft("m1")
		}
		s.writeFile("machines", "ssh-ng://m3.invalid x86_64-linux - 2 1 - -\n")
		hive("nowhere")
		s.says(s.run(4, "apply"), "m3.invalid")
		s.checkWhich("m1=ssh")
	})

	t.Run("several hosts", func(t *testing.T) {
		s := s.forSubtest(t)
		// No machine has the address 192.168.77.9.
		several := func(text, hosts string) {
			s.writeHive(`m1 = { lib, ... }: { imports = [ (which "` + text + `") ]; deployment.targetHost = [ ` + hosts + ` ];
				deployment.sshOptions = lib.mkAfter [ "-o" "ConnectTimeout=1" ]; };`)
		}
		uses := "note: m1: uses 192.168.77.10:22, because cannot reach 192.168.77.9:22: "
		several("the second host", `"192.168.77.9" "m1"`)
		got := s.run(0, "apply")
		s.says(got, "1 switched", uses)
		if n := strings.Count(got.err, uses); n != 1 {
			t.Errorf("the dead host was tried %d times\n%s", n, got.err)
		}
		s.checkWhich("m1=the second host")
		s.says(s.run(0, "apply"), "1 unchanged", uses)
		s.says(s.run(0, "status"), "as deployed", uses)
		s.says(s.run(0, "plan"), "unchanged", uses)
		s.says(s.run(0, "exec", "--", "hostname"), "m1\n", uses)
		s.says(s.run(0, "ssh", "m1", "--", "hostname"), "m1\n", uses)
		several("the first host", `"m1" "192.168.77.9"`)
		got = s.run(0, "apply")
		s.says(got, "1 switched")
		s.saysNot(got, "192.168.77.9")
		several("no host", `"192.168.77.9" "m3.invalid"`)
		s.says(s.run(6, "apply"), "error: m1: ", "none of its hosts accepts a login: cannot reach 192.168.77.9:22: ", "; cannot reach m3.invalid:22: ")
		s.checkWhich("m1=the first host")
		s.checkNothingLeft("m1")
	})

	t.Run("unreachable", func(t *testing.T) {
		s := s.forSubtest(t)
		s.writeHive(`m1 = which "deploy"; m2.deployment.targetUser = "nobody"; m3.deployment.targetHost = "m3.invalid";`)
		got := s.run(6, "exec", "--", "true")
		s.says(got, "error: m2: ", "nobody", "error: m3: ", "m3.invalid")
		config, err := os.ReadFile(s.l.SSHConfig)
		if err != nil {
			t.Fatal(err)
		}
		s.writeFile("ssh_config", strings.ReplaceAll(string(config), "UserKnownHostsFile", "UserKnownHostsFile /dev/null #"))
		s.writeFile("hive.nix", strings.ReplaceAll(s.readFile("hive.nix"), s.l.SSHConfig, s.dir+"/ssh_config"))
		s.says(s.run(6, "exec", "--on", "m1", "--", "true"), "error: m1: ", "host key", "--accept-new-host-keys")
	})
}
