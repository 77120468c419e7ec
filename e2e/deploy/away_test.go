package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/lab"
)

// Of a hive of five nodes, two optional nodes are away: one is off, and packets to the other are lost. The others are deployed, and
// the run succeeds. A node that goes away while the run lasts is an error.
func TestAway(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, lab.Start(t, 5))
	proceed := filepath.Join(s.dir, "proceed")
	// The build of m4 waits for a file.
	hive := func(text string) {
		s.writeHive(fmt.Sprintf(`
  m1 = which "%[1]s";
  m2 = which "%[1]s";
  m3 = { imports = [ (which "%[1]s") ]; deployment.optional = true; };
  m4 = {
    imports = [ (which "%[1]s") ];
    deployment = { optional = true; sshOptions = [ "-o" "ConnectTimeout=1" "-o" "ServerAliveInterval=1" "-o" "ServerAliveCountMax=1" ]; };
    environment.etc.late.source = derivation {
      name = "late-%[1]s"; system = builtins.currentSystem; builder = "/bin/sh";
      args = [ "-c" "for i in $(/usr/bin/seq 600); do test -e %[2]s && break; /usr/bin/sleep 0.1; done; echo >$out" ];
    };
  };
  m5 = { imports = [ (which "%[1]s") ]; deployment = { optional = true; sshOptions = [ "-o" "ConnectTimeout=1" ]; }; };`, text, proceed))
	}
	hive("one")
	s.l.PowerCut(s, "m4")
	const lose = `ip neigh replace $0 lladdr 02:00:00:00:00:99 nud permanent dev "$(ip -o route get $0 | sed 's/.* dev \([^ ]*\).*/\1/')"`
	if out, err := s.l.NetworkCommand(t.Context(), "sh", "-c", lose, s.l.Machine("m5").IP).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	before := s.countLogins("m3")
	got := s.run(0, "apply")
	s.says(got, "evaluate  3 units", "3 switched", "note: skipped: 2 nodes away: m4", "m5 (no answer within 1s)\n")
	if logins := s.countLogins("m3") - before - 1; logins > 3 {
		t.Errorf("%d logins at an optional node, want 1 and one or two more to confirm the switch", logins)
	}
	s.checkWhich("m1=one", "m2=one", "m3=one")
	s.says(s.run(0, "status", "--check"), "m5: away: no answer within 1s\n")
	s.says(s.run(0, "check"), "3 nodes up")

	s.l.PowerOn(s, "m4")
	hive("two")
	p := s.start("apply", "--timeout", "check=0,settle=0s")
	s.waitFor(time.Minute, "the build", func() bool {
		return len(s.findEvents(func(h runEvent) bool { return h.Event == "build-start" })) > 0
	})
	s.l.PowerCut(s, "m4")
	if err := os.WriteFile(proceed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got = p.end(); got.code == 0 {
		t.Error("exit 0, although a node went away during the run")
	}
	s.says(got, "error: m4: ", "note: skipped: 1 node away: m5 (no answer within 1s)\n")
	s.checkWhich("m1=two", "m2=two", "m3=two")
}
