package activate

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/e2e/lab"
)

// bench is one machine with the systems in its store, and the host and activator to reach it.
type bench struct {
	t     testing.TB
	l     *lab.Lab
	name  string
	paths map[string]string
	host  *remote.Host
	rec   *recorder
	a     *Activator
	runs  int
}

func newBench(t testing.TB, l *lab.Lab, name, user string, paths map[string]string) *bench {
	b := &bench{t: t, l: l, name: name, paths: paths, host: labHost(t, l, name, user), rec: &recorder{}}
	b.a = &Activator{Send: b.rec.add}
	send(t, labHost(t, l, name, "root"), paths)
	return b
}

func (b *bench) request(system string, goal Goal) Request {
	b.runs++
	return Request{Run: time.Now().UTC().Format("20060102T150405.000"), Path: b.paths[system], Goal: goal, Confirm: 8 * time.Second, ReplaceUnknown: true}
}

// goTo switches to a system, which must succeed.
func (b *bench) goTo(system string) Result {
	b.t.Helper()
	return b.must(b.request(system, Switch))
}

func (b *bench) must(r Request) Result {
	b.t.Helper()
	begin := time.Now()
	res, err := b.a.Activate(b.t.Context(), b.name, b.host, r)
	if err != nil {
		b.t.Fatalf("%v\n%s", err, b.rec.log())
	}
	b.t.Logf("%s: %s in %v", b.name, r.Goal, time.Since(begin).Round(time.Millisecond))
	return res
}

func (b *bench) fails(r Request) (Result, *FailedError) {
	b.t.Helper()
	begin := time.Now()
	res, err := b.a.Activate(b.t.Context(), b.name, b.host, r)
	var failed *FailedError
	if !errors.As(err, &failed) {
		b.t.Fatalf("got %v, want a FailedError\n%s", err, b.rec.log())
	}
	b.t.Logf("after %v: %v", time.Since(begin).Round(time.Millisecond), err)
	return res, failed
}

func (b *bench) inspect() Node {
	b.t.Helper()
	n, err := b.a.inspectFresh(b.t.Context(), b.name, b.host)
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// is asserts which systems the machine runs and boots, and that no rollback is armed.
func (b *bench) is(runs, boots string) {
	b.t.Helper()
	n := b.inspect()
	if n.Current != b.paths[runs] {
		b.t.Errorf("runs %s, want %s (%s)", n.Current, runs, b.paths[runs])
	}
	if boots != "" {
		if n.Profile != b.paths[boots] {
			b.t.Errorf("profile is %s, want %s (%s)", n.Profile, boots, b.paths[boots])
		}
		if got := b.l.Run(b.t, b.name, "cat /boot/nixbench-default"); got != b.paths[boots] {
			b.t.Errorf("would boot %s, want %s (%s)", got, boots, b.paths[boots])
		}
	}
	if n.Last != nil && n.Last.Alive {
		b.t.Errorf("a run is still alive: %+v", n.Last)
	}
	if got := b.l.Run(b.t, b.name, "systemctl list-units --all --plain --no-legend 'nixbench-activate*'; ls /nix/var/nix/gcroots/nixbench | grep -v previous || :"); got != "" {
		b.t.Errorf("left behind: %s", got)
	}
}

func TestLab(t *testing.T) {
	t.Parallel()
	if os.Getenv("NIXBENCH_E2E") == "" {
		t.Skip("needs NIXBENCH_E2E=1")
	}
	paths := build(t)
	tests := []struct {
		name string
		user string
		run  func(*testing.T, *bench)
	}{
		{"goals", "root", testGoals},
		{"failures", "deploy", testFailures},
		{"cut", "root", testCut},
		{"hang", "root", testHang},
		{"reboot", "root", testReboot},
		{"killed", "root", testKilled},
		{"late firewall", "root", testLate("lateFirewall", "no client could log in to confirm it within 8s")},
		{"late guard", "root", testLate("lateGuard", "no client could log in to confirm it within 8s")},
		{"late failure", "root", testLate("lateFailure", "unit late.service failed soon after the switch", "the disk is on fire")},
		{"late loop", "root", testLate("lateLoop", "unit late.service failed soon after the switch", "the disk is on fire")},
	}
	l := lab.Start(t, len(tests), "--disk", "m3=100M")
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, newBench(t, l, l.Machines[i].Name, test.user, paths))
		})
	}
}
