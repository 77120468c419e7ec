package deploy

import (
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/lab"
)

// Each goal of apply does its steps, and changes nothing beyond them.
func TestGoals(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, lab.Start(t, 1))
	// Everything on a node that a deployment may change.
	const everything = `readlink -f /run/current-system /nix/var/nix/profiles/system; cat /boot/nixbench-default
		cd / && find /nix/var/nix/profiles /nix/var/nix/gcroots /run/keys /run/nixbench /var/lib/nixbench /etc/systemd/system /etc/which -printf '%p %l %s %T@\n' 2>/dev/null | sort`
	look := func(s *sandbox) string { return s.runOn("m1", everything) }
	at := func(s *sandbox, runs, boots string) {
		s.Helper()
		got := s.runOn("m1", "cat /run/current-system/etc/which /nix/var/nix/profiles/system/etc/which")
		if want := runs + boots; got != want {
			s.Errorf("runs and would boot %s, want %s", got, want)
		}
		if got := s.runOn("m1", "cat $(cat /boot/nixbench-default)/etc/which"); got != boots {
			s.Errorf("boots %s, want %s", got, boots)
		}
	}
	hive := func(text string) {
		s.writeHive(`m1 = { imports = [ (which "` + text + `") ]; systemd.services.witness = once "echo ` + text + `";
			deployment.keys.k.text = "key of ` + text + `"; };`)
	}
	system := func(s *sandbox) string {
		s.Helper()
		out := strings.Fields(s.run(0, "build").out)
		return out[len(out)-1]
	}
	hive("one")
	s.run(0, "apply")
	at(s, "one", "one")

	hive("two")
	path := system(s)
	before := look(s)
	got := s.run(0, "apply", "build")
	s.says(got, path)
	if look(s) != before {
		t.Error("build changed the node")
	}
	// dry-activate changes only the store.
	got = s.run(0, "apply", "dry-activate")
	s.says(got, "would ", "witness.service", "1 looked at")
	if after := look(s); after != before {
		t.Errorf("dry-activate changed the node:\n%s\nwas\n%s", after, before)
	}
	s.checkNothingLeft("m1")

	hive("three")
	path = system(s)
	got = s.run(0, "apply", "push")
	s.says(got, "1 copied")
	s.runOn("m1", "nix-store --check-validity "+path)
	at(s, "one", "one")
	if got := s.runOn("m1", "cat /run/keys/k"); got != "key of one" {
		t.Errorf("push uploaded %s", got)
	}

	s.says(s.run(0, "apply", "keys"), "uploaded k")
	if got := s.runOn("m1", "cat /run/keys/k"); got != "key of three" {
		t.Errorf("the key is %s", got)
	}
	at(s, "one", "one")

	got = s.run(0, "apply", "boot")
	s.says(got, "generation 2 boots next")
	at(s, "one", "three")
	s.says(s.run(0, "apply", "boot"), "1 unchanged")
	hive("four")
	s.says(s.run(0, "apply", "test"), "runs until the next boot")
	at(s, "four", "three")
	s.says(s.run(0, "apply", "test"), "1 unchanged")
	s.l.Reboot(t, "m1")
	at(s, "three", "three")
	s.says(s.run(0, "apply"), "1 switched")
	at(s, "four", "four")
	s.checkNothingLeft("m1")

	s.run(2, "apply", "swich")
}
