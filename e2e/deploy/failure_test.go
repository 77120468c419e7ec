package deploy

import (
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/lab"
)

// Units that fail, waves, and taking back the whole run.
func TestFailure(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.Start(t, 3))
	const three = `m1 = which "one"; m2 = which "one"; m3 = which "one";`
	s.hive(three)
	s.run(0, "apply")

	t.Run("unit", func(t *testing.T) {
		s := s.in(t)
		s.hive(`m1 = which "two"; m3 = which "two";
			m2 = { imports = [ (which "two") ]; systemd.services.broken = once "echo the disk is on fire; exit 1"; };`)
		got := s.run(8, "apply")
		s.says(got, "2 switched, 1 rolled-back", "error: m2: ", "broken.service", "the disk is on fire", "the node is back on")
		s.saysNot(got, "error: m1", "error: m3")
		s.is("m1=two", "m2=one", "m3=two")
		s.settled("m1", "m2", "m3")
	})

	t.Run("failing before", func(t *testing.T) {
		s := s.in(t)
		const rotten = `m1 = which "two"; m3 = which "two"; m2 = { imports = [ (which "%s") ]; systemd.services.rotten = once "exit 3"; };`
		s.hive(strings.ReplaceAll(rotten, "%s", "rotten"))
		s.says(s.run(8, "apply", "--no-rollback"), "2 unchanged, 1 failed", "rotten.service", "it was not rolled back")
		s.is("m2=rotten")
		s.hive(strings.ReplaceAll(rotten, "%s", "still rotten"))
		s.says(s.run(0, "apply"), "1 switched, 2 unchanged", "failed before, too: rotten.service")
		s.is("m2=still rotten")
		s.hive(`m1 = which "two"; m2 = which "three"; m3 = which "two";`)
		s.run(0, "apply")
		s.settled("m2")
	})

	t.Run("waves", func(t *testing.T) {
		s := s.in(t)
		s.hive(`m1 = which "four"; m3 = which "four";
			m2 = { imports = [ (which "four") ]; systemd.services.broken = once "exit 1"; };`)
		got := s.run(8, "apply", "--max-unavailable", "1")
		s.says(got, "1 switched, 1 rolled-back, 1 skipped")
		s.is("m1=four", "m2=three", "m3=two")
		if got := s.phases("m3"); got != "connect" {
			t.Errorf("m3 went through %s", got)
		}
		s.settled("m1", "m2", "m3")
	})

	t.Run("all back", func(t *testing.T) {
		s := s.in(t)
		s.hive(`m1 = which "five"; m3 = which "five";
			m2 = { imports = [ (which "five") ]; systemd.services.broken = once "exit 1"; };`)
		got := s.run(8, "apply", "--rollback-all-on-failure")
		s.says(got, "3 rolled-back", "rolled back to generation", "because another node failed")
		s.is("m1=four", "m2=three", "m3=two")
		s.settled("m1", "m2", "m3")

		// And on from there.
		s.hive(`m1 = which "six"; m2 = which "six"; m3 = which "six";`)
		s.says(s.run(0, "apply"), "3 switched")
		s.is("m1=six", "m2=six", "m3=six")
		s.settled("m1", "m2", "m3")
	})

	t.Run("keep going", func(t *testing.T) {
		s := s.in(t)
		const hive = `m1 = which "seven"; m3 = which "seven"; m2 = { imports = [ (which "seven") ]; assertions = [ { assertion = false; message = "not like this"; } ]; };`
		s.hive(hive)
		s.says(s.run(3, "apply"), "not like this")
		s.is("m1=six", "m3=six")
		got := s.run(3, "apply", "--keep-going")
		s.says(got, "not like this", "2 switched, 1 skipped")
		s.is("m1=seven", "m2=six", "m3=seven")
		s.hive(`m1 = which "seven"; m3 = which "seven"; m2 = { pkgs, ... }: { imports = [ (which "seven") ]; environment.etc.bad.source = derivation { name = "bad"; system = builtins.currentSystem; builder = "/bin/sh"; args = [ "-c" "echo no way; exit 1" ]; }; };`)
		s.says(s.run(4, "apply"), "no way")
		s.is("m2=six")
		s.settled("m1", "m2", "m3")
	})
}
