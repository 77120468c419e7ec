package deploy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/lab"
)

// at asserts which systems a machine runs and would boot: by the profile, and by the
// boot loader.
func (s *site) at(node, runs, boots string) {
	s.Helper()
	got := s.on(node, `for f in /run/current-system /nix/var/nix/profiles/system "$(cat /boot/nixbench-default)"; do cat "$f/etc/which"; echo; done`)
	if want := []string{runs, boots, boots}; strings.Join(strings.Fields(got), " ") != strings.Join(want, " ") {
		s.Errorf("%s runs, has and would boot %q, want %q", node, strings.Fields(got), want)
	}
}

// A run that is taken back goes to what nodes ran, and to what they would have booted.
func TestTakeBack(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.Start(t, 2))
	// m2 has a boot loader that cannot be installed, or a unit that fails.
	const noLoader = `system.build.installBootLoader = lib.mkForce "/bin/false";`
	const broken = `systemd.services.broken = once "exit 1"; system.activationScripts.slow = "sleep 3";`
	hive := func(m1, m2, trouble string) {
		s.hive(fmt.Sprintf(`m1 = { imports = [ (which "%s") ]; deployment.keys.k.text = "of %[1]s"; }; m2 = { lib, ... }: { imports = [ (which "%s") ]; %s };`, m1, m2, trouble))
	}
	key := func(s *site, want string) {
		s.Helper()
		if got := s.on("m1", "cat /run/keys/k; ls -A /run/keys"); got != want+"k" {
			s.Errorf("the key is %q, want %q", got, want)
		}
	}
	hive("one", "one", "")
	s.run(0, "apply")
	good := s.state().Nodes["m1"].Good

	t.Run("boot", func(t *testing.T) {
		s := s.in(t)
		hive("two", "two", noLoader)
		got := s.run(8, "apply", "boot", "--rollback-all-on-failure", "--max-unavailable", "1", "--on", "m1,m2")
		s.says(got, "rolled back to generation 1", "the boot loader could not be installed")
		s.at("m1", "one", "one")
		s.at("m2", "one", "one")
		key(s, "of one")
		s.settled("m1", "m2")
		if now := s.state().Nodes["m1"].Good; now == nil || now.Path != good.Path || now.Generation != 1 {
			t.Errorf("on record is %+v, was %+v", now, good)
		}
	})

	t.Run("boot, with another system waiting for it", func(t *testing.T) {
		s := s.in(t)
		hive("three", "one", "")
		s.says(s.run(0, "apply", "boot"), "1 unchanged")
		s.at("m1", "one", "three")
		key(s, "of three")
		hive("four", "four", noLoader)
		s.run(8, "apply", "boot", "--rollback-all-on-failure", "--max-unavailable", "1")
		s.at("m1", "one", "three")
		s.at("m2", "one", "one")
		key(s, "of three")
	})

	t.Run("switch, with another system waiting for a boot", func(t *testing.T) {
		s := s.in(t)
		hive("five", "five", broken)
		s.says(s.run(8, "apply", "--rollback-all-on-failure"), "2 rolled-back")
		s.at("m1", "one", "three")
		for what, on := range map[string]*recordedSystem{"good": s.state().Nodes["m1"].Good, "before": s.state().Nodes["m1"].Before} {
			if on == nil || on.Path != good.Path || on.Generation != 1 { // not that which it would boot
				t.Errorf("%s on record is %+v, was %+v", what, on, good)
			}
		}
		s.at("m2", "one", "one")
		key(s, "of three")
	})

	t.Run("test", func(t *testing.T) {
		s := s.in(t)
		hive("six", "six", broken)
		s.says(s.run(8, "apply", "test", "--rollback-all-on-failure"), "2 rolled-back")
		s.at("m1", "one", "three")
		s.at("m2", "one", "one")
		key(s, "of three")
		hive("seven", "seven", "")
		s.says(s.run(0, "apply"), "2 switched")
		key(s, "of seven")
		s.settled("m1", "m2")
	})
}

// Of nodes that had no system before, there is none to take back. They are left as
// they are, which is said, and the next apply goes on from there.
func TestTakeBackFirst(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.Start(t, 2))
	const hive = `m1 = { imports = [ (which "one") ]; deployment.keys.k.text = "of one"; }; m2 = { imports = [ (which "one") ]; %s };`
	s.hive(fmt.Sprintf(hive, `systemd.services.broken = once "exit 1"; system.activationScripts.slow = "sleep 3";`))
	got := s.run(8, "apply", "--rollback-all-on-failure")
	s.says(got, "error: m2: ", "broken.service", "error: m1: cannot be rolled back: it had no earlier generation")
	s.saysNot(got, "rolled back to generation")
	s.is("m1=one")
	if got := s.on("m1", "cat /run/keys/k"); got != "of one" {
		t.Errorf("the key is %q", got)
	}
	if good := s.state().Nodes["m1"].Good; good == nil || good.Generation != 1 || good.Path != s.on("m1", "readlink -f /run/current-system") {
		t.Errorf("on record is %+v", good)
	}
	if good := s.state().Nodes["m2"].Good; good != nil {
		t.Errorf("m2 is well: %+v", good)
	}
	s.settled("m1")

	s.hive(fmt.Sprintf(hive, ""))
	s.says(s.run(0, "apply", "--rollback-all-on-failure"), "1 switched, 1 unchanged")
	s.is("m1=one", "m2=one")
	s.settled("m1", "m2")
	if got := s.on("m1", "ls -A /run/keys"); got != "k" {
		t.Errorf("left behind: %s", got)
	}
}

// What is on record after a switch that nothing was armed for.
func TestNoRollbackRecord(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.Start(t, 1))
	paths := map[string]string{}
	apply := func(code int, text, more string) said {
		t.Helper()
		s.hive(`m1 = { imports = [ (which "` + text + `") ]; ` + more + ` };`)
		got := s.run(code, "apply", "--no-rollback")
		paths[text] = s.on("m1", "readlink -f /run/current-system")
		s.is("m1=" + text)
		s.at("m1", text, text)
		s.settled("m1")
		return got
	}
	record := func(good string, goodGeneration int, before string, beforeGeneration int) {
		t.Helper()
		n := s.state().Nodes["m1"]
		if n.Good == nil || n.Good.Path != paths[good] || n.Good.Generation != goodGeneration {
			t.Errorf("good is %+v, want %s in generation %d", n.Good, good, goodGeneration)
		}
		if n.Before == nil || n.Before.Path != paths[before] || n.Before.Generation != beforeGeneration {
			t.Errorf("before is %+v, want %s in generation %d", n.Before, before, beforeGeneration)
		}
	}
	apply(0, "one", "")
	paths[""] = ""
	record("one", 1, "", 0)
	apply(0, "two", "")
	record("two", 2, "one", 1)
	// It runs, but it is not well.
	s.says(apply(8, "three", `systemd.services.broken = once "exit 1";`), "it was not rolled back")
	record("two", 2, "two", 2)
	s.run(0, "rollback", "--yes")
	s.at("m1", "two", "two")
	record("two", 2, "three", 3)
	apply(0, "four", "")
	record("four", 4, "two", 2)
}

// Keys that the hive has no more go with the last system that may need them.
func TestKeysKept(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.Start(t, 1))
	keys := func(want string) {
		t.Helper()
		if got := strings.Join(strings.Fields(s.on("m1", "ls -A /run/keys")), " "); got != want {
			t.Errorf("keys: %s; want %s", got, want)
		}
	}
	hive := func(text, keys string) { s.hive(`m1 = { imports = [ (which "` + text + `") ]; ` + keys + ` };`) }
	const a, b = `deployment.keys.a.text = "a";`, `deployment.keys.b.text = "b";`
	hive("one", a+b)
	s.run(0, "apply")
	keys("a b")

	hive("two", b)
	s.run(0, "apply", "boot") // one runs
	keys("a b")
	s.run(0, "apply", "boot")
	keys("a b")
	hive("three", "")
	s.run(0, "apply", "test") // two boots
	keys("a b")
	s.at("m1", "three", "two")
	s.run(0, "apply", "test")
	keys("a b")
	hive("four", "")
	s.run(0, "apply", "boot") // three runs, which nobody asks about keys
	keys("a b")
	s.run(0, "apply")
	keys("")
	s.at("m1", "four", "four")

	// A boot does not bring back the ones that lived in memory; the kept list is none
	// of what is there.
	hive("five", a)
	s.run(0, "apply", "boot")
	keys("a")
	hive("six", b)
	s.run(0, "apply", "boot")
	keys("a b")
	s.l.Reboot(t, "m1")
	s.at("m1", "six", "six")
	s.says(s.run(0, "apply"), "uploaded b")
	keys("b")
	if got := s.on("m1", "cat /var/lib/nixbench/keys"); got != "/run/keys/b" {
		t.Errorf("on the list is %s", got)
	}
}
