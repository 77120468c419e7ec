package deploy

import (
	"testing"

	"github.com/nixbench/nixbench/e2e/lab"
)

// Switching to what already runs is no switch, for a specialisation, too.
func TestSpecialisationTwice(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.Start(t, 1))
	s.hive(`m1 = { lib, ... }: { imports = [ (which "base") ]; specialisation.quiet.configuration.environment.etc."which".text = lib.mkForce "quiet"; };`)
	s.says(s.run(0, "apply"), "1 switched")
	s.says(s.run(0, "apply", "--specialisation", "quiet"), "1 switched")
	s.is("m1=quiet")
	s.says(s.run(0, "apply", "--specialisation", "quiet"), "1 unchanged")
	if got := s.phases("m1"); got != "connect" {
		t.Errorf("m1 went through %q", got)
	}
	s.is("m1=quiet")
	s.says(s.run(0, "apply"), "1 switched")
	s.is("m1=base")
}

// What somebody else deployed is not touched, if the hive says so; and nothing is
// copied or uploaded first.
func TestUnknownProfileIsRefusedFirst(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.Start(t, 1))
	s.hive(`m1 = { imports = [ (which "theirs") ]; };`)
	s.run(0, "apply")
	s.on("m1", "rm -r /var/lib/nixbench /run/nixbench")
	theirs := s.on("m1", "readlink -f /run/current-system")

	s = newSite(t, s.l) // which knows nothing of it
	s.hive(`m1 = { imports = [ (which "ours") ]; deployment.replaceUnknownProfiles = false; deployment.keys.k.text = "secret"; };`)
	got := s.run(8, "apply")
	s.says(got, "m1: the node has "+theirs+", which was not deployed from here", "--force-replace-unknown-profiles", "1 failed")
	if got := s.phases("m1"); got != "connect" {
		t.Errorf("m1 went through %q", got)
	}
	s.on("m1", "! test -e /run/keys/k")
	s.says(s.run(0, "apply", "dry-activate"), "apply would refuse to replace "+theirs, "1 looked at")
	s.is("m1=theirs")
	s.says(s.run(0, "apply", "--force-replace-unknown-profiles"), "1 switched")
	s.is("m1=ours")
	s.saysNot(s.run(0, "apply", "dry-activate"), "refuse")
}
