package deploy

import (
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/lab"
)

// Failing units, waves, the rollback of the whole run, and nodes that cannot be evaluated or built.
func TestFailure(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, lab.Start(t, 3))
	const three = `m1 = which "one"; m2 = which "one"; m3 = which "one";`
	s.writeHive(three)
	s.run(0, "apply")

	t.Run("unit", func(t *testing.T) {
		s := s.forSubtest(t)
		s.writeHive(`m1 = which "two"; m3 = which "two";
			m2 = { imports = [ (which "two") ]; systemd.services.broken = once "echo the disk is on fire; exit 1"; };`)
		got := s.run(8, "apply")
		s.says(got, "2 switched, 1 rolled-back", "error: m2: ", "broken.service", "the disk is on fire", "the node rolled back to ")
		s.saysNot(got, "error: m1", "error: m3")
		s.checkWhich("m1=two", "m2=one", "m3=two")
		s.checkNothingLeft("m1", "m2", "m3")
	})

	t.Run("failing before", func(t *testing.T) {
		s := s.forSubtest(t)
		const rotten = `m1 = which "two"; m3 = which "two"; m2 = { imports = [ (which "%s") ]; systemd.services.rotten = once "exit 3"; };`
		s.writeHive(strings.ReplaceAll(rotten, "%s", "rotten"))
		s.says(s.run(8, "apply", "--rollback", "off"), "2 unchanged, 1 failed", "rotten.service", "it was not rolled back")
		s.checkWhich("m2=rotten")
		s.writeHive(strings.ReplaceAll(rotten, "%s", "still rotten"))
		s.says(s.run(0, "apply"), "1 switched, 2 unchanged", "failed before, too: rotten.service")
		s.checkWhich("m2=still rotten")
		s.writeHive(`m1 = which "two"; m2 = which "three"; m3 = which "two";`)
		s.run(0, "apply")
		s.checkNothingLeft("m2")
	})

	t.Run("waves", func(t *testing.T) {
		s := s.forSubtest(t)
		s.writeHive(`m1 = which "four"; m3 = which "four";
			m2 = { imports = [ (which "four") ]; systemd.services.broken = once "exit 1"; };`)
		got := s.run(8, "apply", "--max-unavailable", "1")
		s.says(got, "1 switched, 1 rolled-back, 1 skipped")
		s.checkWhich("m1=four", "m2=three", "m3=two")
		if got := s.startedPhases("m3"); got != "connect" {
			t.Errorf("m3 went through %s", got)
		}
		s.checkNothingLeft("m1", "m2", "m3")
	})

	t.Run("all back", func(t *testing.T) {
		s := s.forSubtest(t)
		s.writeHive(`m1 = which "five"; m3 = which "five";
			m2 = { imports = [ (which "five") ]; systemd.services.broken = once "exit 1"; };`)
		got := s.run(8, "apply", "--rollback", "all")
		s.says(got, "3 rolled-back", "rolled back to generation", "because another node failed")
		s.checkWhich("m1=four", "m2=three", "m3=two")
		s.checkNothingLeft("m1", "m2", "m3")

		// The next apply succeeds.
		s.writeHive(`m1 = which "six"; m2 = which "six"; m3 = which "six";`)
		s.says(s.run(0, "apply"), "3 switched")
		s.checkWhich("m1=six", "m2=six", "m3=six")
		s.checkNothingLeft("m1", "m2", "m3")
	})

	t.Run("keep going", func(t *testing.T) {
		s := s.forSubtest(t)
		const hive = `m1 = which "seven"; m3 = which "seven"; m2 = { imports = [ (which "seven") ]; assertions = [ { assertion = false; message = "not like this"; } ]; };`
		s.writeHive(hive)
		s.says(s.run(3, "apply"), "not like this")
		s.checkWhich("m1=six", "m3=six")
		got := s.run(3, "apply", "--keep-going")
		s.says(got, "not like this", "2 switched, 1 skipped")
		s.checkWhich("m1=seven", "m2=six", "m3=seven")
		s.writeHive(`m1 = which "seven"; m3 = which "seven"; m2 = { pkgs, ... }: { imports = [ (which "seven") ]; environment.etc.bad.source = derivation { name = "bad"; system = builtins.currentSystem; builder = "/bin/sh"; args = [ "-c" "echo no way; exit 1" ]; }; };`)
		s.says(s.run(4, "apply"), "no way")
		s.checkWhich("m2=six")
		s.checkNothingLeft("m1", "m2", "m3")
	})
}
