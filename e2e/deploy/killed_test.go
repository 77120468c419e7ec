package deploy

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/lab"
)

// When a run was killed or interrupted during a reboot, the node completes the reboot, and the
// next run waits for the node.
func TestKilledReboot(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, lab.Start(t, 1))
	// The service that stops slowly keeps the machine in its shutdown while the run is killed. It stops before sshd.
	hive := func(text string) {
		s.writeHive(`m1 = {
			imports = [ (which "` + text + `") ];
			deployment.keys.k.text = "k";
			systemd.services.slow = {
				wantedBy = [ "multi-user.target" ];
				after = [ "ssh.service" ];
				serviceConfig = { Type = "oneshot"; RemainAfterExit = true; ExecStart = "/bin/true"; ExecStop = "/bin/sleep 4"; };
			};
		};`)
	}
	hive("one")
	s.run(0, "apply")
	hive("two")
	s.run(0, "apply", "boot")
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
		boot := s.l.BootID(t, "m1")
		p := s.start("reboot", "--yes")
		s.waitFor(30*time.Second, "the shutdown", func() bool {
			// A connection to a machine that shuts down can stay open without an answer.
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			return s.l.SSH(ctx, "m1", "systemctl is-system-running | grep -q stopping").Run() == nil
		})
		if err := p.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if got := p.end(); got.code == 0 {
			t.Fatalf("the reboot was over before the signal: %s", got.err)
		}
		if got := s.readState().Intents; len(got) != 1 || got[0].Step != "reboot" {
			t.Errorf("intents: %+v", got)
		}
		s.says(s.run(0, "apply"), "uploaded k") // the reboot has deleted the keys in /run
		s.checkWhich("m1=two")
		s.l.WaitReady(t, "m1", boot)
		s.run(0, "status", "--check")
		s.checkNothingLeft("m1")
	}
	s.run(0, "reboot", "--yes")
	s.run(0, "plan", "--exit-code")
}

// After a run was killed or interrupted at any point, the next apply succeeds and leaves nothing
// behind.
func TestKilledApply(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, lab.Start(t, 2))
	version := 0
	// big and slow write a new version of both nodes: with a big system, whose copy takes a
	// while, and with an activation that takes two seconds.
	big := func() {
		version++
		s.writeHive(strings.ReplaceAll(fmt.Sprintf(`m1 = MODULE; m2 = which "v%d";`, version), "MODULE",
			fmt.Sprintf(`{ imports = [ (which "v%d") ]; environment.etc.big.source = derivation { name = "big-%d"; system = builtins.currentSystem; builder = "/bin/sh"; args = [ "-c" "/usr/bin/head -c 300000000 /dev/urandom >$out" ]; nonce = "%d"; }; }`,
				version, version, time.Now().UnixNano())))
	}
	slow := func() {
		version++
		s.writeHive(fmt.Sprintf(`m1 = { imports = [ (which "v%d") ]; system.activationScripts.slow = "echo slowly; sleep 2"; }; m2 = which "v%d";`, version, version))
	}
	log := func(node string) func(runEvent) bool {
		return func(h runEvent) bool {
			return h.Event == "node-log" && h.Node == node && strings.Contains(h.Text, "slowly")
		}
	}
	points := []struct {
		name string
		hive func()
		at   func(runEvent) bool
	}{
		{"copy", big, func(h runEvent) bool {
			return h.Event == "node-progress" && h.Phase == "copy" && h.Node == "m1" && h.Done > 20e6
		}},
		{"switch", slow, log("m1")},
		{"confirm", slow, func(h runEvent) bool { return h.Event == "node-start" && h.Phase == "confirm" && h.Node == "m1" }},
	}
	slow()
	s.run(0, "apply")
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
		for _, point := range points {
			t.Run(fmt.Sprintf("%v at %s", signal, point.name), func(t *testing.T) {
				s := s.forSubtest(t)
				point.hive()
				p := s.start("apply", "--timeout", "confirm=20s")
				s.waitFor(60*time.Second, point.name, func() bool { return len(s.findEvents(point.at)) > 0 })
				begin := time.Now()
				if err := p.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
				got := p.end()
				want := 130
				if signal == syscall.SIGKILL {
					want = 137
				}
				if got.code != want && !(got.code == 0 && point.name == "confirm") {
					t.Errorf("exit %d, want %d\n%s", got.code, want, got.err)
				}
				if took := time.Since(begin); took > 10*time.Second {
					t.Errorf("nixbench ended %v after the signal, want at most 10s", took)
				}
				if signal == syscall.SIGINT {
					t.Log(got.err)
				}
				got = s.run(0, "apply")
				t.Log(got.err)
				s.checkWhich(fmt.Sprintf("m1=v%d", version), fmt.Sprintf("m2=v%d", version))
				s.checkNothingLeft("m1", "m2")
			})
		}
	}
}
