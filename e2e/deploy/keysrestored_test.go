package deploy

import (
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/lab"
)

// When a node rolls back to its old system, its old keys are restored.
func TestKeysRestored(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, lab.Start(t, 2))
	const old = `deployment.keys = { k = { text = "old"; permissions = "0440"; group = "daemon"; }; gone.text = "gone"; late = { text = "old"; uploadAt = "post-activation"; }; }; environment.etc."which".text = "old";`
	const fresh = `deployment.keys = { k.text = "new"; more = { text = "new"; destDir = "/var/keys"; }; late = { text = "new"; uploadAt = "post-activation"; }; }; environment.etc."which".text = "new";`
	hive := func(s *sandbox, m1, m2 string) {
		s.Helper()
		s.writeHive("m1 = { lib, ... }: { " + m1 + " };\n  m2 = { " + m2 + " };")
	}
	const look = `cd /run/keys && stat -c '%n %a %G' * /var/keys/* 2>/dev/null; grep -H . * /var/keys/* 2>/dev/null; cat /var/lib/nixbench/keys; ls -d /run/keys/.nixbench-before 2>/dev/null || :`
	hive(s, old, `imports = [ (which "one") ];`)
	s.run(0, "apply")
	was := s.runOn("m1", look)
	s.says(runResult{out: was}, "k 440 daemon", "k:old", "gone:gone", "late:old")
	s.saysNot(runResult{out: was}, "more", "before")
	checkRestored := func(s *sandbox) {
		s.Helper()
		if got := s.runOn("m1", look); got != was {
			s.Errorf("the keys are\n%s\nthey were\n%s", got, was)
		}
		s.checkWhich("m1=old")
		s.checkNothingLeft("m1")
	}
	const broken = `systemd.services.broken = once "exit 1";`

	t.Run("a unit fails", func(t *testing.T) {
		s := s.forSubtest(t)
		// The activation logs the mode and owner of the folder with the old keys.
		hive(s, fresh+`system.activationScripts.look = "stat -c '%A %U' /run/keys/.nixbench-before";`+broken, `imports = [ (which "one") ];`)
		got := s.run(8, "apply")
		s.says(got, "1 rolled-back")
		if len(s.findEvents(func(h runEvent) bool { return h.Event == "node-log" && h.Text == "drwx------ root" })) != 1 {
			t.Error("during the switch there is no folder with the old keys that only root can read")
		}
		if log := s.findEvents(func(h runEvent) bool {
			return h.Event == "node-end" && h.Phase == "keys" && strings.Contains(h.Text, "uploaded k, more")
		}); len(log) != 1 {
			t.Errorf("no keys were uploaded: %v", s.events())
		}
		checkRestored(s)
	})

	t.Run("a unit that waits for a late key fails", func(t *testing.T) {
		s := s.forSubtest(t)
		keys := strings.Replace(fresh, "deployment.keys = {", `deployment.keys = { later = { text = "new"; uploadAt = "post-activation"; };`, 1)
		hive(s, keys+`systemd.services.uses = once "sleep 1; exit 1" // { wantedBy = [ "later-key.service" ]; after = [ "later-key.service" ]; };`, `imports = [ (which "one") ];`)
		s.says(s.run(8, "apply"), "unit uses.service failed soon after the switch", "1 rolled-back")
		checkRestored(s)
	})

	t.Run("locked out", func(t *testing.T) {
		s := s.forSubtest(t)
		hive(s, fresh+`networking.firewall.enable = lib.mkForce true;`, `imports = [ (which "one") ];`)
		s.says(s.run(8, "apply", "--timeout", "confirm=5s"), "no client could log in to confirm it")
		checkRestored(s)
	})

	// nixbench's connection from before the cut is still open, but dead: its lost packets are
	// retransmitted after increasing intervals.
	t.Run("cut", func(t *testing.T) {
		s := s.forSubtest(t)
		hive(s, fresh+`systemd.services.cut = once "/usr/sbin/ip link set eth0 down" // { postStop = "/usr/sbin/ip link set eth0 up"; };`, `imports = [ (which "one") ];`)
		got := s.run(8, "apply", "--timeout", "confirm=15s")
		s.says(got, "no client could log in to confirm it", "the node rolled back to ")
		s.saysNot(got, "its keys", "deadline exceeded")
		checkRestored(s)
	})

	t.Run("the client is killed", func(t *testing.T) {
		s := s.forSubtest(t)
		hive(s, fresh+`system.activationScripts.slow = "echo slowly; sleep 2";`, `imports = [ (which "one") ];`)
		p := s.start("apply", "--timeout", "confirm=5s")
		s.waitFor(30*time.Second, "the switch", func() bool {
			return len(s.findEvents(func(h runEvent) bool { return h.Event == "node-log" && h.Phase == "activate" && h.Node == "m1" })) > 0
		})
		if got := s.runOn("m1", "cat /run/keys/k"); got != "new" {
			t.Errorf("during the switch the key is %s", got)
		}
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		p.end()
		s.waitFor(30*time.Second, "the node to go back", func() bool {
			return s.runOn("m1", "cat /run/keys/k; grep -c outcome=rolled-back /run/nixbench/activate/state || :") == "old1"
		})
		if got := s.runOn("m1", look); got != was {
			t.Errorf("the keys are\n%s\nthey were\n%s", got, was)
		}
		// The next run cancels the armed rollback before it uploads keys.
		p = s.start("apply", "--timeout", "confirm=60s")
		s.waitFor(30*time.Second, "the switch", func() bool {
			return len(s.findEvents(func(h runEvent) bool { return h.Event == "node-log" && h.Phase == "activate" && h.Node == "m1" })) > 0
		})
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		p.end()
		hive(s, strings.Replace(fresh, `k.text = "new"`, `k.text = "newer"`, 1)+broken, `imports = [ (which "one") ];`)
		s.run(8, "apply")
		checkRestored(s)
	})

	t.Run("the client is killed before the switch", func(t *testing.T) {
		s := s.forSubtest(t)
		// Killed during the upload of keys, and after it.
		for _, point := range []string{"node-start", "node-end"} {
			hive(s, fresh, `imports = [ (which "one") ];`)
			p := s.start("apply", "--timeout", "confirm=5s")
			s.waitFor(30*time.Second, "the keys", func() bool {
				return len(s.findEvents(func(h runEvent) bool { return h.Event == point && h.Phase == "keys" && h.Node == "m1" })) > 0
			})
			if err := p.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			p.end()
			s.waitFor(time.Minute, "what was begun to end", func() bool {
				return s.runOn("m1", "systemctl is-active nixbench-activate || :") == "inactive"
			})
			t.Logf("killed at %s of keys, it left\n%s", point, s.runOn("m1", look))
			hive(s, fresh+broken, `imports = [ (which "one") ];`)
			s.run(8, "apply", "--timeout", "confirm=5s")
			checkRestored(s)
		}
	})

	t.Run("the run is killed", func(t *testing.T) {
		s := s.forSubtest(t)
		hive(s, fresh+`system.activationScripts.slow = "echo slowly; sleep 3";`, `imports = [ (which "one") ];`)
		p := s.start("apply")
		s.waitFor(30*time.Second, "the switch", func() bool {
			return len(s.findEvents(func(h runEvent) bool { return h.Event == "node-log" && h.Phase == "activate" && h.Node == "m1" })) > 0
		})
		s.runOn("m1", "systemctl kill -s KILL nixbench-activate")
		if got := p.end(); got.code != 8 {
			t.Errorf("exit %d\n%s", got.code, got.err)
		}
		checkRestored(s)
	})

	t.Run("the boot loader fails", func(t *testing.T) {
		s := s.forSubtest(t)
		hive(s, fresh+`system.build.installBootLoader = lib.mkForce "/bin/false";`, `imports = [ (which "one") ];`)
		s.says(s.run(8, "apply", "boot"), "the boot loader could not be installed")
		checkRestored(s)
		s.says(s.run(8, "apply"), "the boot loader could not be installed", "the node rolled back to ")
		checkRestored(s)
	})

	t.Run("a pre-switch check fails", func(t *testing.T) {
		s := s.forSubtest(t)
		const check = `system.preSwitchChecks.switchInhibitors = "case $2 in boot) ;; *) echo from dbus to broker; false ;; esac";`
		hive(s, fresh+check, `imports = [ (which "one") ];`)
		for _, more := range [][]string{nil, {"--rollback", "off"}} {
			got := s.run(8, append([]string{"apply"}, more...)...)
			s.says(got, "a pre-switch check of the new system failed, and nothing was changed", "Pre-switch check 'switchInhibitors' failed", "from dbus to broker")
			s.saysNot(got, "rolled back", "rolling back")
			checkRestored(s)
		}
	})

	t.Run("the switch does not begin", func(t *testing.T) {
		s := s.forSubtest(t)
		hive(s, fresh, `imports = [ (which "one") ];`)
		got := s.start("apply", "--activator", "nixos-rebuild").end()
		if got.code == 0 {
			t.Error("apply without nixos-rebuild on the node has succeeded")
		}
		s.says(got, "no nixos-rebuild")
		if log := s.findEvents(func(h runEvent) bool { return h.Event == "node-end" && h.Phase == "keys" && h.Node == "m1" }); len(log) != 1 {
			t.Errorf("keys were uploaded %d times before the switch, want once", len(log))
		}
		checkRestored(s)
	})

	t.Run("the whole run", func(t *testing.T) {
		s := s.forSubtest(t)
		// m1 is complete before m2 fails: its post-activation key is new, and one key is removed.
		hive(s, fresh, `imports = [ (which "two") ]; system.activationScripts.slow = "sleep 6";`+broken)
		got := s.run(8, "apply", "--rollback", "all")
		s.says(got, "2 rolled-back", "m1 ", "rolled back to generation 1")
		for _, want := range []string{"uploaded late", "removed /run/keys/gone"} {
			if log := s.findEvents(func(h runEvent) bool {
				return h.Event == "node-end" && h.Phase == "keys" && strings.Contains(h.Text, want)
			}); len(log) != 1 {
				t.Errorf("there is no event %q of the keys before the rollback: %v", want, s.events())
			}
		}
		checkRestored(s)
		s.checkWhich("m2=one")
	})

	t.Run("no rollback", func(t *testing.T) {
		s := s.forSubtest(t)
		applyAndCheck := func(text string, args ...string) {
			t.Helper()
			hive(s, strings.ReplaceAll(fresh, "new", text), `imports = [ (which "one") ];`)
			s.says(s.run(0, append([]string{"apply"}, args...)...), "1 switched")
			got := s.runOn("m1", look)
			s.says(runResult{out: got}, "k:"+text, "late:"+text, "/var/keys/more:"+text)
			s.saysNot(runResult{out: got}, "gone:", ".nixbench-before")
		}
		applyAndCheck("second")
		applyAndCheck("third", "--rollback", "all")
		applyAndCheck("fourth", "--rollback", "off")
		hive(s, strings.ReplaceAll(fresh, "new", "fifth")+broken, `imports = [ (which "one") ];`)
		s.run(8, "apply", "--rollback", "off")
		s.checkWhich("m1=fifth")
		s.says(runResult{out: s.runOn("m1", look)}, "k:fifth", "late:fourth", "/var/keys/more:fifth")
		if got := s.runOn("m1", "ls -A /run/keys"); strings.Contains(got, "before") {
			t.Errorf("old keys are still there: %s", got)
		}
	})
}
