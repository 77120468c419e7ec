package deploy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/lab"
)

// checkSystems checks which system a machine runs, and which one it would boot by its profile and
// by its boot loader.
func (s *sandbox) checkSystems(node, runs, boots string) {
	s.Helper()
	got := s.runOn(node, `for f in /run/current-system /nix/var/nix/profiles/system "$(cat /boot/nixbench-default)"; do cat "$f/etc/which"; echo; done`)
	if want := []string{runs, boots, boots}; strings.Join(strings.Fields(got), " ") != strings.Join(want, " ") {
		s.Errorf("%s: the running system, the profile and the boot default are %q, want %q", node, strings.Fields(got), want)
	}
}

// When a run is rolled back, each node runs its previous system again, and would boot its previous
// boot default, which may be another system.
func TestRollbackAll(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, lab.Start(t, 2))
	// m2 has a boot loader that cannot be installed, or a unit that fails.
	const noLoader = `system.build.installBootLoader = lib.mkForce "/bin/false";`
	const broken = `systemd.services.broken = once "exit 1"; system.activationScripts.slow = "sleep 3";`
	hive := func(m1, m2, trouble string) {
		s.writeHive(fmt.Sprintf(`m1 = { imports = [ (which "%s") ]; deployment.keys.k.text = "of %[1]s"; }; m2 = { lib, ... }: { imports = [ (which "%s") ]; %s };`, m1, m2, trouble))
	}
	key := func(s *sandbox, want string) {
		s.Helper()
		if got := s.runOn("m1", "cat /run/keys/k; ls -A /run/keys"); got != want+"k" {
			s.Errorf("the key is %q, want %q", got, want)
		}
	}
	hive("one", "one", "")
	s.run(0, "apply")
	good := s.readState().Nodes["m1"].Good

	t.Run("boot", func(t *testing.T) {
		s := s.forSubtest(t)
		hive("two", "two", noLoader)
		got := s.run(8, "apply", "boot", "--rollback", "all", "--max-unavailable", "1", "--on", "m1,m2")
		s.says(got, "rolled back to generation 1", "the boot loader could not be installed")
		s.checkSystems("m1", "one", "one")
		s.checkSystems("m2", "one", "one")
		key(s, "of one")
		s.checkNothingLeft("m1", "m2")
		if now := s.readState().Nodes["m1"].Good; now == nil || now.Path != good.Path || now.Generation != 1 {
			t.Errorf("good in state.json is %+v, was %+v", now, good)
		}
	})

	t.Run("boot, with another system as boot default", func(t *testing.T) {
		s := s.forSubtest(t)
		hive("three", "one", "")
		s.says(s.run(0, "apply", "boot"), "1 unchanged")
		s.checkSystems("m1", "one", "three")
		key(s, "of three")
		hive("four", "four", noLoader)
		s.run(8, "apply", "boot", "--rollback", "all", "--max-unavailable", "1")
		s.checkSystems("m1", "one", "three")
		s.checkSystems("m2", "one", "one")
		key(s, "of three")
	})

	t.Run("switch, with another system as boot default", func(t *testing.T) {
		s := s.forSubtest(t)
		hive("five", "five", broken)
		s.says(s.run(8, "apply", "--rollback", "all"), "2 rolled-back")
		s.checkSystems("m1", "one", "three")
		for what, on := range map[string]*recordedSystem{"good": s.readState().Nodes["m1"].Good, "before": s.readState().Nodes["m1"].Before} {
			if on == nil || on.Path != good.Path || on.Generation != 1 { // the running system, not the boot default
				t.Errorf("%s in state.json is %+v, was %+v", what, on, good)
			}
		}
		s.checkSystems("m2", "one", "one")
		key(s, "of three")
	})

	t.Run("test", func(t *testing.T) {
		s := s.forSubtest(t)
		hive("six", "six", broken)
		s.says(s.run(8, "apply", "test", "--rollback", "all"), "2 rolled-back")
		s.checkSystems("m1", "one", "three")
		s.checkSystems("m2", "one", "one")
		key(s, "of three")
		hive("seven", "seven", "")
		s.says(s.run(0, "apply"), "2 switched")
		key(s, "of seven")
		s.checkNothingLeft("m1", "m2")
	})
}

// A node without an earlier generation cannot be rolled back: apply reports this and leaves the
// node unchanged, and the next apply succeeds.
func TestRollbackAllWithoutGeneration(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, lab.Start(t, 2))
	const hive = `m1 = { imports = [ (which "one") ]; deployment.keys.k.text = "of one"; }; m2 = { imports = [ (which "one") ]; %s };`
	s.writeHive(fmt.Sprintf(hive, `systemd.services.broken = once "exit 1"; system.activationScripts.slow = "sleep 3";`))
	got := s.run(8, "apply", "--rollback", "all")
	s.says(got, "error: m2: ", "broken.service", "error: m1: cannot be rolled back: it had no earlier generation")
	s.saysNot(got, "rolled back to generation")
	s.checkWhich("m1=one")
	if got := s.runOn("m1", "cat /run/keys/k"); got != "of one" {
		t.Errorf("the key is %q", got)
	}
	if good := s.readState().Nodes["m1"].Good; good == nil || good.Generation != 1 || good.Path != s.runOn("m1", "readlink -f /run/current-system") {
		t.Errorf("good of m1 in state.json is %+v, want generation 1 and the running system", good)
	}
	if good := s.readState().Nodes["m2"].Good; good != nil {
		t.Errorf("good of m2 in state.json is %+v, want none: its unit has failed", good)
	}
	s.checkNothingLeft("m1")

	s.writeHive(fmt.Sprintf(hive, ""))
	s.says(s.run(0, "apply", "--rollback", "all"), "1 switched, 1 unchanged")
	s.checkWhich("m1=one", "m2=one")
	s.checkNothingLeft("m1", "m2")
	if got := s.runOn("m1", "ls -A /run/keys"); got != "k" {
		t.Errorf("left behind: %s", got)
	}
}

// The systems that state.json records after `apply --rollback off`.
func TestNoRollbackRecord(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, lab.Start(t, 1))
	paths := map[string]string{}
	apply := func(code int, text, more string) runResult {
		t.Helper()
		s.writeHive(`m1 = { imports = [ (which "` + text + `") ]; ` + more + ` };`)
		got := s.run(code, "apply", "--rollback", "off")
		paths[text] = s.runOn("m1", "readlink -f /run/current-system")
		s.checkWhich("m1=" + text)
		s.checkSystems("m1", text, text)
		s.checkNothingLeft("m1")
		return got
	}
	record := func(good string, goodGeneration int, before string, beforeGeneration int) {
		t.Helper()
		n := s.readState().Nodes["m1"]
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
	// The system runs, but a unit has failed, so it does not become the good one.
	s.says(apply(8, "three", `systemd.services.broken = once "exit 1";`), "it was not rolled back")
	record("two", 2, "two", 2)
	s.run(0, "rollback", "--yes")
	s.checkSystems("m1", "two", "two")
	record("two", 2, "three", 3)
	apply(0, "four", "")
	record("four", 4, "two", 2)
}

// A key that the hive no longer has is deleted only when neither the running system nor the boot
// default may need it.
func TestKeysKept(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, lab.Start(t, 1))
	keys := func(want string) {
		t.Helper()
		if got := strings.Join(strings.Fields(s.runOn("m1", "ls -A /run/keys")), " "); got != want {
			t.Errorf("keys: %s; want %s", got, want)
		}
	}
	hive := func(text, keys string) { s.writeHive(`m1 = { imports = [ (which "` + text + `") ]; ` + keys + ` };`) }
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
	s.checkSystems("m1", "three", "two")
	s.run(0, "apply", "test")
	keys("a b")
	hive("four", "")
	s.run(0, "apply", "boot") // three runs; its keys are not recorded
	keys("a b")
	s.run(0, "apply")
	keys("")
	s.checkSystems("m1", "four", "four")

	// A reboot deletes the keys in /run, and afterwards the node's list of keys has only those
	// that exist.
	hive("five", a)
	s.run(0, "apply", "boot")
	keys("a")
	hive("six", b)
	s.run(0, "apply", "boot")
	keys("a b")
	s.l.Reboot(t, "m1")
	s.checkSystems("m1", "six", "six")
	s.says(s.run(0, "apply"), "uploaded b")
	keys("b")
	if got := s.runOn("m1", "cat /var/lib/nixbench/keys"); got != "/run/keys/b" {
		t.Errorf("the node's list of keys is %s, want /run/keys/b", got)
	}
}
