package deploy

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/lab"
)

// The everyday use of apply and exec, on three machines.
func TestApply(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, lab.Start(t, 3))
	const three = `
  m1 = { imports = [ (which "%") ]; deployment.tags = [ "web" ]; };
  "m2.rack.example" = { deployment.targetHost = "m2"; imports = [ (which "%") ]; deployment.tags = [ "web" "db" ]; };
  m3 = which "%";`
	system := func(text string) string { return strings.ReplaceAll(three, "%", text) }
	nodes := []string{"m1", "m2.rack.example", "m3"}
	checkAll := func(s *sandbox, text string) {
		s.Helper()
		s.checkWhich("m1="+text, "m2.rack.example="+text, "m3="+text)
	}
	logins := func() map[string]int {
		n := map[string]int{}
		for _, node := range nodes {
			n[node] = s.countLogins(node)
		}
		return n
	}

	s.writeHive(system("one"))
	before := logins()
	s.says(s.run(0, "apply"), "3 switched", "generation 1")
	after := logins()
	for _, node := range nodes {
		if got := after[node] - before[node] - 1; got != 2 && got != 3 {
			t.Errorf("%s: %d logins for a switch, want 1 and one or two more to confirm it", node, got)
		}
	}
	checkAll(s, "one")
	s.checkNothingLeft(nodes...)

	t.Run("change that starts no service", func(t *testing.T) {
		s := s.forSubtest(t)
		s.writeHive(system("two"))
		before := logins()
		s.says(s.run(0, "apply"), "3 switched")
		after := logins()
		for _, node := range nodes {
			if got := after[node] - before[node] - 1; got != 2 {
				t.Errorf("%s: %d logins for a switch, want 1 and one more to confirm it", node, got)
			}
		}
		s.writeHive(system("one"))
		s.run(0, "apply")
		checkAll(s, "one")
	})

	t.Run("no-op", func(t *testing.T) {
		s := s.forSubtest(t)
		before := logins()
		s.says(s.run(0, "apply"), "3 unchanged")
		after := logins()
		for _, node := range nodes {
			if got := s.startedPhases(node); got != "connect" {
				t.Errorf("%s went through %s", node, got)
			}
			if got := after[node] - before[node] - 1; got != 1 {
				t.Errorf("%s: %d logins for nothing to do", node, got)
			}
		}
	})

	t.Run("tags", func(t *testing.T) {
		s := s.forSubtest(t)
		s.writeHive(system("two"))
		s.says(s.run(0, "apply", "--on", "@web,!m1"), "1 switched")
		s.checkWhich("m1=one", "m2.rack.example=two", "m3=one")
		s.run(2, "apply", "--on", "@nobody")
		s.run(0, "apply")
		checkAll(s, "two")
		s.checkNothingLeft(nodes...)
	})

	t.Run("exec", func(t *testing.T) {
		s := s.forSubtest(t)
		got := s.run(0, "exec", "--on", "@web", "--", "cat", "/etc/which")
		s.says(got, "m1 | two\n", "m2.rack.example | two\n")
		s.saysNot(got, "m3 |")
		got = s.run(5, "exec", "--", `case $(cat /proc/sys/kernel/hostname) in m1*) exit 3;; m3*) echo so sad >&2; exit 5;; esac`)
		s.says(got, "m3 | so sad\n", "m1 (3)", "m3 (5)")
		s.says(s.run(3, "exec", "--on", "m1", "--", "echo $(hostname); exit 3"), "the command failed on m1 (3)")
		if got := s.run(0, "exec", "--on", "m1", "--", "echo", "$HOME  $0").out; got != "/root /bin/bash\n" {
			t.Errorf("the node's shell printed %q", got)
		}
		if got := s.run(0, "exec", "--on", "m1", "--literal", "--", "echo", "$HOME  $0").out; got != "$HOME  $0\n" {
			t.Errorf("a literal command printed %q", got)
		}
	})

	t.Run("exec without input", func(t *testing.T) { // the end of stdin must not be lost
		s := s.forSubtest(t)
		for range 100 {
			s.run(0, "exec", "--on", "m1", "--", "cat")
		}
	})

	t.Run("allowApplyAll", func(t *testing.T) {
		s := s.forSubtest(t)
		s.writeHive(system("three") + `meta.allowApplyAll = false;`)
		s.says(s.run(2, "apply"), "allowApplyAll", "--on '*'")
		s.says(s.run(0, "apply", "--on", "m1"), "1 switched")
		s.run(0, "apply", "--on", "*")
		checkAll(s, "three")
	})

	t.Run("overlap", func(t *testing.T) {
		s := s.forSubtest(t)
		s.writeHive(strings.ReplaceAll(strings.ReplaceAll(system("four"), `m3 = which "four"`, `m3.imports = [ (which "four") ]`),
			`(which "four")`, `(which "four") { system.activationScripts.sleep = "sleep 3"; }`))
		s.run(0, "apply")
		// The total duration is not compared, because other tests may keep this machine busy.
		var began, ended []time.Time
		for _, h := range s.findEvents(func(h runEvent) bool { return h.Phase == "activate" }) {
			switch h.Event {
			case "node-start":
				began = append(began, h.Time)
			case "node-end":
				ended = append(ended, h.Time)
			}
		}
		if len(began) != 3 || len(ended) != 3 {
			t.Fatalf("%d began, %d ended", len(began), len(ended))
		}
		lastBegan, firstEnded := slices.MaxFunc(began, time.Time.Compare), slices.MinFunc(ended, time.Time.Compare)
		t.Logf("all three were active for %v", firstEnded.Sub(lastBegan))
		if !lastBegan.Before(firstEnded) {
			t.Error("the nodes were not all activated at the same time")
		}
		checkAll(s, "four")
	})

	t.Run("down", func(t *testing.T) {
		s := s.forSubtest(t)
		s.writeHive(system("five"))
		// A timer on the node starts sshd again after both commands below.
		s.runOn("m3", "systemd-run --quiet --on-active=25s --timer-property=AccuracySec=1s systemctl start ssh; systemctl stop ssh")
		got := s.run(6, "apply")
		s.says(got, "2 switched", "error: m3: ", "connection refused")
		s.saysNot(got, "error: m1", "error: m2")
		got = s.run(6, "exec", "--", "true")
		s.says(got, "error: m3: ")
		s.l.WaitReady(t, "m3", "")
		s.checkWhich("m1=five", "m2.rack.example=five", "m3=four")
		s.says(s.run(0, "apply"), "1 switched, 2 unchanged")
		checkAll(s, "five")
		s.checkNothingLeft(nodes...)
	})
}
