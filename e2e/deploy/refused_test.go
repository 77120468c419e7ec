package deploy

import (
	"testing"

	"github.com/nixbench/nixbench/e2e/lab"
)

// Applying the system that already runs is a no-op, also for a specialisation.
func TestSpecialisationTwice(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, lab.Start(t, 1))
	s.writeHive(`m1 = { lib, ... }: { imports = [ (which "base") ]; specialisation.quiet.configuration.environment.etc."which".text = lib.mkForce "quiet"; };`)
	s.says(s.run(0, "apply"), "1 switched")
	s.says(s.run(0, "apply", "--specialisation", "quiet"), "1 switched")
	s.checkWhich("m1=quiet")
	s.says(s.run(0, "apply", "--specialisation", "quiet"), "1 unchanged")
	if got := s.startedPhases("m1"); got != "connect" {
		t.Errorf("m1 went through %q", got)
	}
	s.checkWhich("m1=quiet")
	s.says(s.run(0, "apply"), "1 switched")
	s.checkWhich("m1=base")
}

// With replaceUnknownProfiles = false, apply refuses a node with a system of another deployer,
// before it copies or uploads anything.
func TestUnknownProfileIsRefusedFirst(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, lab.Start(t, 1))
	s.writeHive(`m1 = { imports = [ (which "theirs") ]; };`)
	s.run(0, "apply")
	s.runOn("m1", "rm -r /var/lib/nixbench /run/nixbench")
	theirs := s.runOn("m1", "readlink -f /run/current-system")

	s = newSandbox(t, s.l) // its state does not have the system
	s.writeHive(`m1 = { imports = [ (which "ours") ]; deployment.replaceUnknownProfiles = false; deployment.keys.k.text = "secret"; };`)
	got := s.run(8, "apply")
	s.says(got, "m1: the node has "+theirs+", which was not deployed from here", "--force-replace-unknown-profiles", "1 failed")
	if got := s.startedPhases("m1"); got != "connect" {
		t.Errorf("m1 went through %q", got)
	}
	s.runOn("m1", "! test -e /run/keys/k")
	s.says(s.run(0, "apply", "dry-activate"), "apply would refuse to replace "+theirs, "1 looked at")
	s.checkWhich("m1=theirs")
	s.says(s.run(0, "apply", "--force-replace-unknown-profiles"), "1 switched")
	s.checkWhich("m1=ours")
	s.saysNot(s.run(0, "apply", "dry-activate"), "refuse")
}
