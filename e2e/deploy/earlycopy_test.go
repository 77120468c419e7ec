package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/lab"
)

// Systems are copied to their nodes while another unit is evaluated, and activated when everything is built. If the
// late unit fails, or the run is interrupted, no node has changed.
func TestEarlyCopy(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, lab.Start(t, 3))
	proceed := filepath.Join(s.dir, "proceed")
	// The evaluation of m3 reads the result of a derivation whose builder waits for a file.
	hive := func(text, late string) {
		os.Remove(proceed)
		s.writeHive(fmt.Sprintf(`
  m1 = which "%[1]s";
  m2 = which "%[1]s";
  m3 = { pkgs, ... }: {
    environment.etc."which".text = builtins.readFile (derivation {
      name = "late-%[1]s"; system = builtins.currentSystem; builder = "/bin/sh";
      args = [ "-c" "for i in $(/usr/bin/seq 600); do test -e %[2]s && break; /usr/bin/sleep 0.1; done; printf %%s %[1]s >$out" ];
    }) + %[3]s;
  };`, text, proceed, late))
	}
	release := func() {
		if err := os.WriteFile(proceed, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// start begins an apply, and waits until the systems of m1 and m2 are copied.
	start := func(args ...string) *process {
		p := s.start(append([]string{"apply", "--eval-workers", "3", "--eval-node-limit", "1"}, args...)...)
		s.waitFor(time.Minute, "the copies to m1 and m2", func() bool {
			copied := s.findEvents(func(h runEvent) bool { return h.Event == "node-end" && h.Phase == "copy" && !h.Failed })
			return len(copied) == 2
		})
		for _, h := range s.findEvents(func(h runEvent) bool { return h.Event == "phase-end" && h.Phase == "evaluate" }) {
			t.Errorf("evaluated before the copies: %v", h)
		}
		return p
	}
	hive("one", `""`)
	release()
	s.run(0, "apply")

	hive("two", `""`)
	p := start()
	s.checkWhich("m1=one", "m2=one", "m3=one")
	release()
	got := p.end()
	s.says(got, "3 switched")
	s.checkWhich("m1=two", "m2=two", "m3=two")
	for _, node := range []string{"m1", "m2", "m3"} {
		if phases := strings.Fields(s.startedPhases(node)); len(slices.DeleteFunc(phases, func(p string) bool { return p != "copy" })) != 1 {
			t.Errorf("%s: %s", node, s.startedPhases(node))
		}
	}
	s.says(s.run(0, "explain"), "critical path\n  evaluate")
	s.checkNothingLeft("m1", "m2", "m3")

	hive("three", `throw "it is late"`)
	p = start()
	release()
	if got = p.end(); got.code != 3 {
		t.Errorf("exit %d", got.code)
	}
	s.says(got, "m3", "it is late")
	s.checkWhich("m1=two", "m2=two", "m3=two")
	s.checkNothingLeft("m1", "m2", "m3")

	hive("four", `""`)
	p = start()
	if err := p.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if got = p.end(); got.code != 130 || got.took > time.Minute {
		t.Errorf("exit %d after %v", got.code, got.took)
	}
	s.checkWhich("m1=two", "m2=two", "m3=two")
	s.checkNothingLeft("m1", "m2", "m3")

	// The next run finds the copied paths, and copies nothing to m1.
	release()
	s.says(s.run(0, "apply"), "3 switched")
	for _, h := range s.findEvents(func(h runEvent) bool { return h.Event == "node-end" && h.Phase == "copy" && h.Node == "m1" }) {
		if h.Text != "0 paths" {
			t.Error(h)
		}
	}
	s.checkWhich("m1=four", "m2=four", "m3=four")
	s.checkNothingLeft("m1", "m2", "m3")
}
