package deploy

import (
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/lab"
)

// A node that goes back to its old system goes back to its old keys.
func TestKeysBack(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.Start(t, 2))
	const old = `deployment.keys = { k = { text = "old"; permissions = "0440"; group = "daemon"; }; gone.text = "gone"; late = { text = "old"; uploadAt = "post-activation"; }; }; environment.etc."which".text = "old";`
	const fresh = `deployment.keys = { k.text = "new"; more = { text = "new"; destDir = "/var/keys"; }; late = { text = "new"; uploadAt = "post-activation"; }; }; environment.etc."which".text = "new";`
	hive := func(s *site, m1, m2 string) {
		s.Helper()
		s.hive("m1 = { lib, ... }: { " + m1 + " };\n  m2 = { " + m2 + " };")
	}
	const look = `cd /run/keys && stat -c '%n %a %G' * /var/keys/* 2>/dev/null; grep -H . * /var/keys/* 2>/dev/null; cat /var/lib/nixbench/keys; ls -d /run/keys/.nixbench-before 2>/dev/null || :`
	hive(s, old, `imports = [ (which "one") ];`)
	s.run(0, "apply")
	was := s.on("m1", look)
	s.says(said{out: was}, "k 440 daemon", "k:old", "gone:gone", "late:old")
	s.saysNot(said{out: was}, "more", "before")
	back := func(s *site) {
		s.Helper()
		if got := s.on("m1", look); got != was {
			s.Errorf("the keys are\n%s\nthey were\n%s", got, was)
		}
		s.is("m1=old")
		s.settled("m1")
	}
	const broken = `systemd.services.broken = once "exit 1";`

	t.Run("a unit fails", func(t *testing.T) {
		s := s.in(t)
		// The folder is looked at by the switch itself.
		hive(s, fresh+`system.activationScripts.look = "stat -c '%A %U' /run/keys/.nixbench-before";`+broken, `imports = [ (which "one") ];`)
		got := s.run(8, "apply")
		s.says(got, "1 rolled-back")
		if len(s.find(func(h happened) bool { return h.Event == "node-log" && h.Text == "drwx------ root" })) != 1 {
			t.Error("what is put aside is not there for the switch to see, or for others to see")
		}
		if log := s.find(func(h happened) bool {
			return h.Event == "node-end" && h.Phase == "keys" && strings.Contains(h.Text, "uploaded k, more")
		}); len(log) != 1 {
			t.Errorf("no keys were uploaded: %v", s.events())
		}
		back(s)
	})

	t.Run("locked out", func(t *testing.T) {
		s := s.in(t)
		hive(s, fresh+`networking.firewall.enable = lib.mkForce true;`, `imports = [ (which "one") ];`)
		s.says(s.run(8, "apply", "--confirm-timeout", "5s"), "no login succeeded to confirm it")
		back(s)
	})

	// The connection from before the cut is still open here, and dead: packets that were lost on it
	// are repeated after ever longer times.
	t.Run("cut", func(t *testing.T) {
		s := s.in(t)
		hive(s, fresh+`systemd.services.cut = once "/usr/sbin/ip link set eth0 down" // { postStop = "/usr/sbin/ip link set eth0 up"; };`, `imports = [ (which "one") ];`)
		got := s.run(8, "apply", "--confirm-timeout", "15s")
		s.says(got, "no login succeeded to confirm it", "the node is back on")
		s.saysNot(got, "its keys", "deadline exceeded")
		back(s)
	})

	t.Run("the client is killed", func(t *testing.T) {
		s := s.in(t)
		hive(s, fresh+`system.activationScripts.slow = "echo slowly; sleep 2";`, `imports = [ (which "one") ];`)
		p := s.start("apply", "--confirm-timeout", "5s")
		s.wait(30*time.Second, "the switch", func() bool {
			return len(s.find(func(h happened) bool { return h.Event == "node-log" && h.Node == "m1" })) > 0
		})
		if got := s.on("m1", "cat /run/keys/k"); got != "new" {
			t.Errorf("during the switch the key is %s", got)
		}
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		p.end()
		s.wait(30*time.Second, "the node to go back", func() bool {
			return s.on("m1", "cat /run/keys/k; grep -c outcome=rolled-back /run/nixbench/activate/state || :") == "old1"
		})
		if got := s.on("m1", look); got != was {
			t.Errorf("the keys are\n%s\nthey were\n%s", got, was)
		}
		// Whoever comes next calls it off, before new keys come.
		p = s.start("apply", "--confirm-timeout", "60s")
		s.wait(30*time.Second, "the switch", func() bool {
			return len(s.find(func(h happened) bool { return h.Event == "node-log" && h.Node == "m1" })) > 0
		})
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		p.end()
		hive(s, strings.Replace(fresh, `k.text = "new"`, `k.text = "newer"`, 1)+broken, `imports = [ (which "one") ];`)
		s.run(8, "apply")
		back(s)
	})

	t.Run("the client is killed before the switch", func(t *testing.T) {
		s := s.in(t)
		// While keys come, and when they are there.
		for _, point := range []string{"node-start", "node-end"} {
			hive(s, fresh, `imports = [ (which "one") ];`)
			p := s.start("apply", "--confirm-timeout", "5s")
			s.wait(30*time.Second, "the keys", func() bool {
				return len(s.find(func(h happened) bool { return h.Event == point && h.Phase == "keys" && h.Node == "m1" })) > 0
			})
			if err := p.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			p.end()
			s.wait(time.Minute, "what was begun to end", func() bool {
				return s.on("m1", "systemctl is-active nixbench-activate || :") == "inactive"
			})
			t.Logf("killed at %s of keys, it left\n%s", point, s.on("m1", look))
			hive(s, fresh+broken, `imports = [ (which "one") ];`)
			s.run(8, "apply", "--confirm-timeout", "5s")
			back(s)
		}
	})

	t.Run("the run is killed", func(t *testing.T) {
		s := s.in(t)
		hive(s, fresh+`system.activationScripts.slow = "echo slowly; sleep 3";`, `imports = [ (which "one") ];`)
		p := s.start("apply")
		s.wait(30*time.Second, "the switch", func() bool {
			return len(s.find(func(h happened) bool { return h.Event == "node-log" && h.Node == "m1" })) > 0
		})
		s.on("m1", "systemctl kill -s KILL nixbench-activate")
		if got := p.end(); got.code != 8 {
			t.Errorf("exit %d\n%s", got.code, got.err)
		}
		back(s)
	})

	t.Run("the boot loader fails", func(t *testing.T) {
		s := s.in(t)
		hive(s, fresh+`system.build.installBootLoader = lib.mkForce "/bin/false";`, `imports = [ (which "one") ];`)
		s.says(s.run(8, "apply", "boot"), "the boot loader could not be installed")
		back(s)
		s.says(s.run(8, "apply"), "the boot loader could not be installed", "the node is back on")
		back(s)
	})

	t.Run("the switch does not begin", func(t *testing.T) {
		s := s.in(t)
		hive(s, fresh, `imports = [ (which "one") ];`)
		got := s.start("apply", "--activator", "nixos-rebuild").end()
		if got.code == 0 {
			t.Error("it did")
		}
		s.says(got, "no nixos-rebuild")
		if log := s.find(func(h happened) bool { return h.Event == "node-end" && h.Phase == "keys" && h.Node == "m1" }); len(log) != 1 {
			t.Errorf("keys came %d times before that", len(log))
		}
		back(s)
	})

	t.Run("the whole run", func(t *testing.T) {
		s := s.in(t)
		// m1 is through before m2 fails: also its late key is new, and one is gone.
		hive(s, fresh, `imports = [ (which "two") ]; system.activationScripts.slow = "sleep 6";`+broken)
		got := s.run(8, "apply", "--rollback-all-on-failure")
		s.says(got, "2 rolled-back", "m1 ", "rolled back to generation 1")
		if log := s.find(func(h happened) bool {
			return h.Event == "node-end" && h.Phase == "keys" && strings.Contains(h.Text, "uploaded late; removed /run/keys/gone")
		}); len(log) != 1 {
			t.Errorf("the late key was not there first: %v", s.events())
		}
		back(s)
		s.is("m2=one")
	})

	t.Run("it stays", func(t *testing.T) {
		s := s.in(t)
		stays := func(text string, args ...string) {
			t.Helper()
			hive(s, strings.ReplaceAll(fresh, "new", text), `imports = [ (which "one") ];`)
			s.says(s.run(0, append([]string{"apply"}, args...)...), "1 switched")
			got := s.on("m1", look)
			s.says(said{out: got}, "k:"+text, "late:"+text, "/var/keys/more:"+text)
			s.saysNot(said{out: got}, "gone:", ".nixbench-before")
		}
		stays("second")
		stays("third", "--rollback-all-on-failure")
		stays("fourth", "--no-rollback")
		hive(s, strings.ReplaceAll(fresh, "new", "fifth")+broken, `imports = [ (which "one") ];`)
		s.run(8, "apply", "--no-rollback")
		s.is("m1=fifth")
		s.says(said{out: s.on("m1", look)}, "k:fifth", "late:fourth", "/var/keys/more:fifth")
		if got := s.on("m1", "ls -A /run/keys"); strings.Contains(got, "before") {
			t.Errorf("old keys are still there: %s", got)
		}
	})
}
