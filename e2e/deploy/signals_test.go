package deploy

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/lab"
)

// A signal during a question ends nixbench within a second.
func TestSignalsDuringQuestion(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, lab.Start(t, 1))
	s.writeHive(`m1 = which "one";`)
	s.run(0, "apply")
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		p := s.startOnTerminal("reboot")
		s.waitFor(20*time.Second, "the question", func() bool { return strings.Contains(p.shows(), "reboot 1 node? [y/N]") })
		begun := time.Now()
		if err := p.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		got := p.end()
		if took := time.Since(begun); got.code != 130 || took > time.Second {
			t.Errorf("%v: exit %d after %v", signal, got.code, took)
		}
	}
	s.checkNothingLeft("m1")
}

// SIGINT and SIGTERM end every phase within a second, or nixbench prints what it waits for, because
// a node must not be left between two states. The next apply succeeds.
func TestSignals(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, lab.Start(t, 2))
	version := 0
	change := func(m1 string) {
		version++
		s.writeHive(fmt.Sprintf(`m1 = { imports = [ (which "v%d") ]; %s }; m2 = which "v%[1]d";`, version, m1))
	}
	slow := `system.activationScripts.slow = "echo slowly; sleep 4";`
	apply := func() { s.run(0, "apply") }
	node := func(event, phase string) func(runEvent) bool {
		return func(h runEvent) bool { return h.Event == event && h.Phase == phase && h.Node == "m1" }
	}
	for _, phase := range []struct {
		name    string
		prepare func()
		at      func(runEvent) bool
		command []string
	}{
		{"keys", func() {
			change(`deployment.keys.k.keyCommand = [ "sh" "-c" "head -c 15000000 /dev/urandom" ];`)
		}, node("node-start", "keys"), []string{"apply"}},
		{"copy", func() {
			change(fmt.Sprintf(`environment.etc.big.source = derivation { name = "big-%d"; system = builtins.currentSystem; builder = "/bin/sh"; args = [ "-c" "/usr/bin/head -c 300000000 /dev/urandom >$out" ]; nonce = "%d"; };`, version, time.Now().UnixNano()))
		}, func(h runEvent) bool {
			return h.Event == "node-progress" && h.Phase == "copy" && h.Node == "m1" && h.Done > 10e6
		}, []string{"apply"}},
		{"switch", func() { change(slow) }, func(h runEvent) bool {
			return h.Event == "node-log" && h.Node == "m1" && strings.Contains(h.Text, "slowly")
		}, []string{"apply"}},
		{"confirm", func() { change(slow) }, node("node-start", "confirm"), []string{"apply"}},
		{"rollback", func() { change(slow); apply(); change(slow); apply() }, node("node-start", "activate"), []string{"rollback", "--yes"}},
		{"upload-keys", func() {
			change(`deployment.keys.k.keyCommand = [ "sh" "-c" "head -c 15000000 /dev/urandom" ];`)
		}, node("node-start", "keys"), []string{"upload-keys"}},
	} {
		for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
			t.Run(phase.name+" "+signal.String(), func(t *testing.T) {
				s := s.forSubtest(t)
				phase.prepare()
				p := s.start(phase.command...)
				s.waitFor(60*time.Second, phase.name, func() bool { return len(s.findEvents(phase.at)) > 0 })
				begun := time.Now()
				if err := p.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
				got := p.end()
				took := time.Since(begun)
				t.Logf("%v: exit %d after %v\n%s", signal, got.code, took, got.err)
				if got.code != 130 {
					t.Errorf("exit %d, want 130", got.code)
				}
				if took > time.Second && !strings.Contains(got.err, "interrupted; waiting for ") {
					t.Errorf("nixbench ended %v after the signal, and did not print what it waited for", took)
				}
				apply()
				s.checkWhich(fmt.Sprintf("m1=v%d", version), fmt.Sprintf("m2=v%d", version))
				s.checkNothingLeft("m1", "m2")
			})
		}
	}
}
