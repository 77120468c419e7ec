package deploy

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/lab"
)

// A question ends, too.
func TestSignalsAtAQuestion(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.Start(t, 1))
	s.hive(`m1 = which "one";`)
	s.run(0, "apply")
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		p := s.onTerminal("reboot")
		s.wait(20*time.Second, "the question", func() bool { return strings.Contains(p.shows(), "reboot 1 node? [y/N]") })
		begun := time.Now()
		if err := p.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		got := p.end()
		if took := time.Since(begun); got.code != 130 || took > time.Second {
			t.Errorf("%v: exit %d after %v", signal, got.code, took)
		}
	}
	s.settled("m1")
}

// SIGINT and SIGTERM end every phase within a second; or it is said within the second what is
// waited for, since a node must not be left between two states. The next apply finds nothing broken.
func TestSignals(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.Start(t, 2))
	version := 0
	change := func(m1 string) {
		version++
		s.hive(fmt.Sprintf(`m1 = { imports = [ (which "v%d") ]; %s }; m2 = which "v%[1]d";`, version, m1))
	}
	slow := `system.activationScripts.slow = "echo slowly; sleep 4";`
	apply := func() { s.run(0, "apply") }
	node := func(event, phase string) func(happened) bool {
		return func(h happened) bool { return h.Event == event && h.Phase == phase && h.Node == "m1" }
	}
	for _, phase := range []struct {
		name    string
		prepare func()
		at      func(happened) bool
		command []string
	}{
		{"keys", func() {
			change(`deployment.keys.k.keyCommand = [ "sh" "-c" "head -c 15000000 /dev/urandom" ];`)
		}, node("node-start", "keys"), []string{"apply"}},
		{"copy", func() {
			change(fmt.Sprintf(`environment.etc.big.source = derivation { name = "big-%d"; system = builtins.currentSystem; builder = "/bin/sh"; args = [ "-c" "/usr/bin/head -c 300000000 /dev/urandom >$out" ]; nonce = "%d"; };`, version, time.Now().UnixNano()))
		}, func(h happened) bool {
			return h.Event == "node-progress" && h.Phase == "copy" && h.Node == "m1" && h.Done > 10e6
		}, []string{"apply"}},
		{"switch", func() { change(slow) }, func(h happened) bool {
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
				s := s.in(t)
				phase.prepare()
				p := s.start(phase.command...)
				s.wait(60*time.Second, phase.name, func() bool { return len(s.find(phase.at)) > 0 })
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
				if took > time.Second && !strings.Contains(got.err, "interrupted; waiting for m1 (") {
					t.Errorf("it took %v, and does not say why", took)
				}
				apply()
				s.is(fmt.Sprintf("m1=v%d", version), fmt.Sprintf("m2=v%d", version))
				s.settled("m1", "m2")
			})
		}
	}
}
