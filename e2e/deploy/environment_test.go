package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/lab"
)

// Failures that neither the hive nor the nodes cause: a second run at the same time, a full disk, a
// read-only state folder, and a hive that is edited during the run.
func TestEnvironmentFailures(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, lab.Start(t, 2, "--disk", "m2=150M"))
	s.writeHive(`m1 = which "one"; m2 = which "one";`)
	s.run(0, "apply")

	t.Run("two at once", func(t *testing.T) {
		s := s.forSubtest(t)
		s.writeHive(`m1 = { imports = [ (which "two") ]; system.activationScripts.slow = "sleep 2"; }; m2 = which "two";`)
		first := s.start("apply")
		s.waitFor(20*time.Second, "the first", func() bool { return len(s.events()) > 0 })
		begin := time.Now()
		second := s.run(10, "apply")
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("the second run failed after %v, want at most 10s", took)
		}
		s.says(second, "error: ", "nixbench apply")
		t.Log(second.err)
		if got := first.end(); got.code != 0 {
			t.Errorf("the first: exit %d\n%s", got.code, got.err)
		}
		s.checkWhich("m1=two", "m2=two")
		s.checkNothingLeft("m1", "m2")
	})

	t.Run("full disk", func(t *testing.T) {
		s := s.forSubtest(t)
		const big = `environment.etc.big.source = derivation { name = "big"; system = builtins.currentSystem; builder = "/bin/sh"; args = [ "-c" "/usr/bin/head -c 60000000 /dev/urandom >$out" ]; };`
		s.writeHive(`m1 = which "three"; m2 = { imports = [ (which "three") ]; ` + big + ` };`)
		s.runOn("m2", "head -c 120M /dev/zero >/var/filler || :; df -h /nix | tail -n 1")
		got := s.run(7, "apply")
		s.says(got, "1 switched, 1 failed", "error: m2: ", "No space left on device")
		t.Log(got.err)
		s.checkWhich("m1=three", "m2=two")
		s.checkNothingLeft("m1", "m2")
		s.runOn("m2", "rm /var/filler")
		s.says(s.run(0, "apply"), "1 switched, 1 unchanged")
		s.checkWhich("m1=three", "m2=three")
		s.checkNothingLeft("m1", "m2")
	})

	t.Run("read-only state", func(t *testing.T) {
		s := s.forSubtest(t)
		s.writeHive(`m1 = which "four"; m2 = which "three";`)
		before := s.readFile(".nixbench/hive/state.json")
		dir := filepath.Join(s.dir, ".nixbench")
		for _, args := range [][]string{{"mount", "--bind", dir, dir}, {"mount", "-o", "remount,bind,ro", dir}} {
			if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
				t.Skipf("cannot make a folder read-only for root here: %s", out)
			}
		}
		got := s.start("apply").end()
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if got.code != 1 {
			t.Errorf("exit %d, want 1", got.code)
		}
		s.says(got, "error: ", ".nixbench/hive", "read-only file system")
		t.Log(got.err)
		s.checkWhich("m1=three")
		if s.readFile(".nixbench/hive/state.json") != before {
			t.Error("state.json has changed")
		}
		// A state folder that cannot be created.
		elsewhere := filepath.Join(s.dir, "elsewhere")
		if err := os.Mkdir(elsewhere, 0o700); err != nil {
			t.Fatal(err)
		}
		s.writeFile("elsewhere/hive.nix", s.readFile("hive.nix"))
		s.writeFile("elsewhere/.nixbench", "in the way")
		s.says(s.run(2, "apply", "-f", "elsewhere/hive.nix"), "error: ", "elsewhere/.nixbench")
		s.checkWhich("m1=three")
	})

	// The hive changes after the survey has begun: the nodes run systems of the old hive, or apply
	// fails and they are unchanged.
	t.Run("changing hive", func(t *testing.T) {
		s := s.forSubtest(t)
		s.writeHive(`m1 = which "five"; m2 = which "five";`)
		old := s.readFile("hive.nix")
		// The first event precedes the evaluation.
		p := s.start("apply")
		s.waitFor(20*time.Second, "the survey", func() bool { return len(s.events()) > 0 })
		s.writeFile("hive.nix", strings.ReplaceAll(strings.ReplaceAll(old, "m2 =", "m4 ="), "five", "six"))
		got := p.end()
		t.Log(got.code, got.err)
		m1, m2 := s.runOn("m1", "cat /etc/which"), s.runOn("m2", "cat /etc/which")
		switch {
		case got.code == 0 && m1 == "five" && m2 == "five":
		case got.code != 0 && m1 == "four" && m2 == "three", got.code != 0 && m1 == "three" && m2 == "three":
			s.says(got, "error: ")
		default:
			t.Errorf("exit %d, m1 runs %s, m2 %s", got.code, m1, m2)
		}
		s.writeFile("hive.nix", old)
		s.run(0, "apply")
		s.checkWhich("m1=five", "m2=five")
		s.checkNothingLeft("m1", "m2")
	})
}
