package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/e2e/lab"
	"github.com/nixbench/nixbench/e2e/transcript"
)

// Hives of Colmena users are deployed unchanged. Only OpenSSH's configuration has the addresses
// of their hosts.
func TestColmenaHives(t *testing.T) {
	t.Parallel()
	l := lab.Start(t, 2)
	for _, m := range []string{"m1", "m2"} {
		l.Run(t, m, "usermod -aG nix-users deploy; printf 'Port 22\nPort 2222\n' > /etc/ssh/sshd_config.d/ports.conf; systemctl restart ssh")
	}
	config := l.Aliases(t, map[string]string{
		"balancer.tiers.example": "m1", "app-1.tiers.example": "m2",
		"router.home.example": "m1", "10.77.0.20": "m2",
		"alpha.flake.example": "m1", "beta.flake.example": "m2",
	})
	hive := func(t *testing.T, name string) *sandbox {
		s := newSandbox(t, l)
		s.env = append(s.env, "SSH_CONFIG_FILE="+config)
		if err := os.CopyFS(s.dir, os.DirFS(filepath.Join("testdata/colmena", name))); err != nil {
			t.Fatal(err)
		}
		return s
	}

	t.Run("tiers", func(t *testing.T) {
		s := hive(t, "tiers")
		s.says(s.run(2, "apply"), "allowApplyAll")
		s.says(s.run(0, "apply", "--on", "@edge,app-*"), "2 switched")
		s.checkWhich("m1=balancer: welcome", "m2=app-1: hello")
		if got := s.runOn("m1", "cat /etc/upstreams /etc/ours; whoami"); got != "app-1.tiers.example\nfrom an overlayroot" {
			t.Errorf("the balancer has %q", got)
		}
		s.says(s.run(0, "apply", "--on", "*"), "2 unchanged")
	})

	t.Run("network", func(t *testing.T) {
		s := hive(t, "network")
		shell := s.shell()
		for _, step := range transcript.Read(t, "../../docs/from-colmena.md") {
			if strings.HasPrefix(step.Command, "nixbench ") {
				shell.Do(step)
			}
		}
		s.checkWhich("m1=router; storage at 10.77.0.20 is nas", "m2=nas")
		s.waitFor(20e9, "the unit of a key", func() bool {
			return s.runOn("m2", "cat /run/backup-read 2>/dev/null || :") == "open sesame"
		})
		if got := s.runOn("m2", "stat -c '%a %U %G' /var/lib/keys/backup.key; cat /run/keys/token /run/keys/motd"); got != "440 backup backup-readers\nfrom a commandnot really a secret" {
			t.Errorf("keys: %q", got)
		}
		s.says(s.run(0, "apply"), "2 unchanged", "omitted, because deployment.targetHost is null: laptop")
	})

	t.Run("flake", func(t *testing.T) {
		s := hive(t, "flake")
		fixture.Lock(t, s.dir, fixture.Input{Name: "nixpkgs", From: "github:NixOS/nixpkgs/nixos-24.11", Folder: nixpkgs})
		s.says(s.run(0, "apply", "--on", "@alpha"), "1 switched")
		s.says(s.run(0, "apply"), "1 switched, 1 unchanged")
		s.checkWhich("m1=alpha, from a nixpkgs", "m2=beta, revision 24.11")
		if got := strings.Count(s.run(0, "eval").out, "flake.example"); got != 2 {
			t.Errorf("eval shows %d hosts", got)
		}
	})
}
