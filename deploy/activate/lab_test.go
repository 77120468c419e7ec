package activate

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/e2e/lab"
)

// bench is one machine, the systems in its store, and our way to both.
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

// goTo switches, which must work.
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
	n, err := b.a.afresh(b.t.Context(), b.name, b.host)
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// is asserts what the machine runs and would boot, and that nothing is armed.
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
	if got := b.l.Run(b.t, b.name, "systemctl list-units --all --plain --no-legend 'nixbench-activate*' 'nixbench-switch*'; ls /nix/var/nix/gcroots/nixbench | grep -v previous || :"); got != "" {
		b.t.Errorf("left behind: %s", got)
	}
}

func TestLab(t *testing.T) {
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
	}
	l := lab.Start(t, len(tests), lab.WithDisk("m3", "100M"))
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, newBench(t, l, l.Machines[i].Name, test.user, paths))
		})
	}
}

func testGoals(t *testing.T, b *bench) {
	n := b.inspect()
	if !n.NixOS || n.Current != "" || n.Generation != 0 || n.Last != nil {
		t.Errorf("a new machine says %+v", n)
	}
	dry := b.must(b.request("one", DryActivate))
	if dry.Dry == nil || !slices.Contains(dry.Dry.Restart, "nix-daemon.service") {
		t.Errorf("dry: %+v", dry.Dry)
	}
	if got := b.l.Run(t, b.name, "ls -d /run/nixbench /var/lib/nixbench /nix/var/nix/gcroots/nixbench /nix/var/nix/profiles/system* 2>/dev/null || :"); got != "" {
		t.Errorf("a dry activation left %s", got)
	}

	hands := b.host.Handshakes()
	res := b.goTo("one")
	if !res.Changed || res.Outcome != Committed || res.Exit != 0 || res.After.Generation != 1 {
		t.Errorf("%+v", res)
	}
	if got := b.host.Handshakes() - hands; got != 1 {
		t.Errorf("%d handshakes to confirm", got)
	}
	if log := b.rec.log(); !strings.Contains(log, "new units were started: steady.service") {
		t.Errorf("the log is %q", log)
	}
	b.is("one", "one")
	if res := b.goTo("one"); res.Changed {
		t.Error("switched to what it is")
	}
	b.goTo("two")
	b.is("two", "two")
	b.must(b.request("three", Test))
	b.is("three", "two")
	res = b.must(b.request("one", Boot))
	b.is("three", "one")
	if res.After.Generation != 3 {
		t.Errorf("generation %d", res.After.Generation)
	}
	// What runs only has to be committed.
	if res := b.goTo("three"); res.Outcome != BootDefault || strings.Contains(strings.Join(res.Log, ""), "activating") {
		t.Errorf("%+v", res)
	}
	b.is("three", "three")

	r := b.request("two", Switch)
	r.Specialisation = "quiet"
	b.must(r)
	if got := b.l.Run(t, b.name, "cat /etc/quiet /boot/nixbench-default"); got != "yes"+b.paths["two"] && got != "yes\n"+b.paths["two"] {
		t.Errorf("specialisation: %q", got)
	}
	r.Run += "x"
	if res := b.must(r); res.Changed {
		t.Error("switched to the specialisation twice")
	}
	r.Specialisation = "loud"
	_, err := b.a.Activate(t.Context(), b.name, b.host, r)
	if err == nil || !strings.Contains(err.Error(), "no specialisation loud: it has quiet") {
		t.Errorf("%v", err)
	}

	// Generations.
	r = b.request("", Switch)
	if res, err := b.a.Rollback(t.Context(), b.name, b.host, 1, r); err != nil || res.After.Generation != 1 {
		t.Errorf("%v %+v", err, res)
	}
	b.is("one", "one")
	r = b.request("", Switch)
	if _, err := b.a.Rollback(t.Context(), b.name, b.host, 99, r); err == nil || !strings.Contains(err.Error(), "no generation 99") {
		t.Errorf("%v", err)
	}
	b.goTo("three")
	r = b.request("", Switch)
	if _, err := b.a.Rollback(t.Context(), b.name, b.host, 0, r); err != nil {
		t.Error(err)
	}
	b.is("one", "one")

	// Not known here, but deployed by us: fine. By somebody else: not.
	r = b.request("two", Switch)
	r.ReplaceUnknown = false
	b.must(r)
	b.l.Run(t, b.name, b.paths["slow"]+"/bin/switch-to-configuration test")
	r = b.request("one", Switch)
	r.ReplaceUnknown = false
	_, err = b.a.Activate(t.Context(), b.name, b.host, r)
	if unknown := (*UnknownProfileError)(nil); !errors.As(err, &unknown) || unknown.Path != b.paths["slow"] {
		t.Errorf("%v", err)
	}
	r.Known = []string{b.paths["slow"]}
	b.must(r)

	// Another init only comes with a reboot.
	b.goTo("one")
	res = b.must(b.request("init", Switch))
	if res.Outcome != BootDefault || res.Exit != 100 || !res.RebootNeeded() {
		t.Errorf("%v, exit %d", res.Outcome, res.Exit)
	}
	b.is("one", "init")
	b.goTo("one")
	b.is("one", "one")

	// Another kernel.
	res = b.must(b.request("kernel", Boot))
	n, err = b.a.Reboot(t.Context(), b.name, b.host, time.Minute)
	if err != nil || n.Booted != b.paths["kernel"] || n.RebootNeeded() {
		t.Errorf("%v %+v", err, n)
	}
	if res := b.goTo("one"); !res.RebootNeeded() {
		t.Errorf("another kernel needs no reboot? %+v", res.After)
	}

	// The node's own nixos-rebuild, once it can do that.
	b.l.Run(t, b.name, `cat >/usr/bin/nixos-rebuild <<'END'
#!/bin/sh
case $1 in --help) echo "--store-path PATH"; exit 0 ;; esac
[ "$2" = --store-path ] || exit 3
case $1 in switch | boot) nix-env -p /nix/var/nix/profiles/system --set "$3" ;; esac
echo rebuilding
"$3/bin/switch-to-configuration" "$1" || exit 1
END
chmod +x /usr/bin/nixos-rebuild`)
	r = b.request("three", Switch)
	r.Activator = NixosRebuild
	if res := b.must(r); res.Outcome != Committed || !slices.Contains(res.Log, "rebuilding") {
		t.Errorf("%v %q", res.Outcome, res.Log)
	}
	b.is("three", "three")
	r = b.request("broken", Switch)
	r.Activator = NixosRebuild
	if res, _ := b.fails(r); !slices.Equal(res.Broken, []string{"broken.service"}) || !res.RolledBack() {
		t.Errorf("%v %v", res.Outcome, res.Broken)
	}
	b.is("three", "three")
	b.l.Run(t, b.name, "rm /usr/bin/nixos-rebuild")

	// Not a system, not here.
	r = b.request("one", Switch)
	r.Path = "/nix/store/00000000000000000000000000000000-nothing"
	_, err = b.a.Activate(t.Context(), b.name, b.host, r)
	if not := (*NotSystemError)(nil); !errors.As(err, &not) {
		t.Errorf("%v", err)
	}
	r = b.request("two", Switch)
	r.Activator = NixosRebuild
	_, err = b.a.Activate(t.Context(), b.name, b.host, r)
	if none := (*NoStorePathError)(nil); !errors.As(err, &none) {
		t.Errorf("%v", err)
	}
}

func testFailures(t *testing.T, b *bench) {
	b.l.Run(t, "root@"+b.name, "ln -sfn bash /bin/sh") // as on NixOS
	b.goTo("one")
	for name, want := range map[string]struct {
		exit int
		text string
	}{
		"broken":  {4, "unit broken.service failed (exit 4); the node is back on "},
		"refuses": {1, "not today"},
		"script":  {2, "the activation script failed (exit 2)"},
		"loader":  {1, "the boot loader could not be installed"},
	} {
		res, err := b.fails(b.request(name, Switch))
		if res.Exit != want.exit || !res.RolledBack() || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%s: %+v\n%v", name, res, err)
		}
		if name == "broken" && (!slices.Equal(res.Broken, []string{"broken.service"}) || !strings.Contains(err.Error(), "the disk is on fire")) {
			t.Errorf("%v %v", res.Broken, err)
		}
		b.is("one", "one")
		if got := b.l.Run(t, b.name, "cat /etc/which; systemctl is-system-running || :"); got != "onerunning" && got != "one\nrunning" {
			t.Errorf("%s: %q", name, got)
		}
	}
	// Without a rollback it stays, and the next switch is not blamed for it.
	r := b.request("broken", Switch)
	r.Confirm = 0
	res, _ := b.fails(r)
	if res.RolledBack() || res.Exit != 4 {
		t.Errorf("%+v", res)
	}
	b.is("broken", "broken")
	res = b.goTo("stillBroken")
	if !slices.Equal(res.AlreadyFailing, []string{"broken.service"}) || len(res.Broken) > 0 || res.Exit != 4 {
		t.Errorf("already failing %q, broken %q, exit %d, after %q", res.AlreadyFailing, res.Broken, res.Exit, res.After.Failed)
	}
	b.is("stillBroken", "stillBroken")
	res, _ = b.fails(b.request("alsoBroken", Switch))
	if !slices.Equal(res.Broken, []string{"worse.service"}) || !slices.Equal(res.AlreadyFailing, []string{"broken.service"}) {
		t.Errorf("%+v", res)
	}
	b.is("stillBroken", "stillBroken")

	// Somebody else is switching.
	b.l.Run(t, "root@"+b.name, "systemd-run -q --unit=other flock /run/nixos/switch-to-configuration.lock sleep 60")
	_, err := b.fails(b.request("one", Switch))
	if !strings.Contains(err.Error(), "another switch is running") {
		t.Error(err)
	}
	b.l.Run(t, "root@"+b.name, "systemctl stop other")
	r = b.request("one", Switch)
	r.Confirm = 0
	b.must(r)
	b.is("one", "one")
}

func testCut(t *testing.T, b *bench) {
	b.goTo("one")
	res, err := b.fails(b.request("cut", Switch))
	if !res.RolledBack() || !strings.Contains(err.Error(), "nobody could log in to confirm it within 8s; the node is back on "+b.paths["one"]+", by itself") {
		t.Errorf("%+v\n%v", res, err)
	}
	b.is("one", "one")
	b.goTo("two")
	b.is("two", "two")

	// A full disk is found out before anything changes.
	b.l.Run(t, b.name, "dd if=/dev/zero of=/var/filler bs=64k 2>/dev/null; dd if=/dev/zero of=/var/filler2 bs=1 count=70000 2>/dev/null; df /var | tail -n 1")
	_, full := b.a.Activate(t.Context(), b.name, b.host, b.request("three", Switch))
	if full == nil || !strings.Contains(full.Error(), "cannot keep a record of the switch") || !strings.Contains(full.Error(), "No space left on device") {
		t.Error(full)
	}
	b.l.Run(t, b.name, "rm /var/filler*")
	b.is("two", "two")
	b.goTo("three")
	b.is("three", "three")
}

// One Activator serves many nodes, and one that is in trouble delays no other.
func TestLabTogether(t *testing.T) {
	if os.Getenv("NIXBENCH_E2E") == "" {
		t.Skip("needs NIXBENCH_E2E=1")
	}
	paths := build(t)
	l := lab.Start(t, 3)
	a := &Activator{}
	var benches []*bench
	for _, m := range l.Machines {
		b := newBench(t, l, m.Name, "root", paths)
		b.a = a
		benches = append(benches, b)
	}
	all := func(systems ...string) (took []time.Duration, errs []error) {
		took, errs = make([]time.Duration, len(benches)), make([]error, len(benches))
		var group sync.WaitGroup
		for i, b := range benches {
			group.Go(func() {
				begin := time.Now()
				_, errs[i] = a.Activate(t.Context(), b.name, b.host, b.request(systems[i], Switch))
				took[i] = time.Since(begin)
			})
		}
		group.Wait()
		return took, errs
	}
	if took, errs := all("one", "one", "one"); errors.Join(errs...) != nil {
		t.Fatal(errs)
	} else {
		t.Logf("three machines in %v", took)
	}
	took, errs := all("hangs", "two", "two")
	if errs[0] == nil || errs[1] != nil || errs[2] != nil || max(took[1], took[2]) > took[0]/2 {
		t.Errorf("%v %v", took, errs)
	}
	for i, system := range []string{"one", "two", "two"} {
		benches[i].is(system, system)
	}
}

func testHang(t *testing.T, b *bench) {
	b.goTo("one")
	for _, name := range []string{"hangs", "hangsUnit"} {
		res, err := b.fails(b.request(name, Switch))
		if !res.RolledBack() || !strings.Contains(err.Error(), "no progress for 8s") {
			t.Errorf("%s: %+v\n%v", name, res, err)
		}
		if name == "hangsUnit" && !strings.Contains(err.Error(), "start stuck.service") {
			t.Error(err)
		}
		b.is("one", "one")
	}
	// Slow is not hanging.
	r := b.request("slow", Switch)
	r.Confirm = 3 * time.Second
	b.must(r)
	b.is("slow", "slow")
}

// waiting starts a run whose client dies before it confirms.
func (b *bench) abandon(system, phase string, confirm time.Duration) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	h := labHost(b.t, b.l, b.name, "root")
	a := &Activator{Send: b.rec.add}
	r := b.request(system, Switch)
	r.Confirm = confirm
	w := a.watch(b.name, h, r.Run, r.Confirm)
	done := make(chan error, 1)
	go func() {
		done <- w.follow(ctx, false, "start", r.Run, string(r.Goal), r.Path, "", wholeSeconds(r.Confirm), "", "", "0")
	}()
	waitFor(b.t, 20*time.Second, "the run to be "+phase, func() bool {
		n := b.inspect()
		return n.Last != nil && n.Last.ID == r.Run && n.Last.phase == phase
	})
	h.Close()
	cancel()
	<-done
}

func testReboot(t *testing.T, b *bench) {
	b.goTo("one")
	b.goTo("two")
	b.abandon("three", "waiting", time.Minute)
	b.l.Reboot(t, b.name)
	b.host = labHost(t, b.l, b.name, "root")
	if n := b.inspect(); n.Last == nil || !n.Last.Rebooted || n.Last.Alive {
		t.Errorf("%+v", n.Last)
	}
	// The next run puts it right, even if it has nothing else to do.
	if res := b.goTo("two"); res.Settled == nil || !res.Settled.Rebooted || res.Changed {
		t.Errorf("%+v", res)
	}
	b.is("two", "two")
	b.abandon("slow", "switching", time.Minute)
	b.l.PowerCut(t, b.name)
	b.l.PowerOn(t, b.name)
	b.host = labHost(t, b.l, b.name, "root")
	if _, err := b.a.Settle(t.Context(), b.name, b.host, ""); err != nil {
		t.Error(err)
	}
	b.is("two", "two")
	b.host = labHost(t, b.l, b.name, "root")
	b.goTo("three")
	b.is("three", "three")
}

func testKilled(t *testing.T, b *bench) {
	b.goTo("one")

	// Before the confirmation: the node goes back.
	b.abandon("two", "waiting", 5*time.Second)
	waitFor(t, 20*time.Second, "the node to go back", func() bool { n := b.inspect(); return !n.Last.Alive })
	b.is("one", "one")
	if n := b.inspect(); n.Last.Outcome != RolledBack || n.Last.Reason != reasonUnconfirmed {
		t.Errorf("%+v", n.Last)
	}

	// The next run to the same system takes it over, to another calls it off.
	b.abandon("two", "switching", time.Minute)
	res := b.goTo("two")
	if res.Settled == nil || res.Settled.Outcome != Committed || res.Changed {
		t.Errorf("%+v", res)
	}
	b.is("two", "two")
	b.abandon("three", "waiting", time.Minute)
	res = b.goTo("one")
	if res.Settled == nil || res.Settled.Outcome != RolledBack || !res.Changed {
		t.Errorf("%+v", res)
	}
	b.is("one", "one")

	// The run itself is killed.
	b.abandon("two", "waiting", time.Minute)
	b.l.Run(t, b.name, "systemctl kill -s KILL nixbench-activate")
	waitFor(t, 20*time.Second, "the node to go back", func() bool { n := b.inspect(); return !n.Last.Alive })
	b.is("one", "one")

	// The connection breaks while the switch runs.
	done := make(chan error, 1)
	go func() {
		_, err := b.a.Activate(t.Context(), b.name, b.host, b.request("slow", Switch))
		done <- err
	}()
	waitFor(t, 20*time.Second, "the switch", func() bool { return strings.Contains(b.rec.log(), "step 3") })
	b.l.SSH(t.Context(), b.name, "pkill -KILL -f '^sshd-session: root@notty'").Run() // kills its own, too
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := strings.Count(b.rec.log(), "step 8\n"); n != 1 {
		t.Errorf("a line of the log came %d times\n%s", n, b.rec.log())
	}
	b.is("slow", "slow")

	// Two at once: the second is told about the first.
	go func() {
		r := b.request("one", Switch)
		r.Path, r.Run = b.paths["slow"], r.Run+"-first"
		b.l.Run(t, b.name, b.paths["one"]+"/bin/switch-to-configuration test")
		_, err := b.a.Activate(t.Context(), b.name, b.host, r)
		done <- err
	}()
	waitFor(t, 20*time.Second, "the first", func() bool { n := b.inspect(); return n.Last.Alive })
	_, err := b.a.Activate(t.Context(), b.name, labHost(t, b.l, b.name, "root"), b.request("two", Switch))
	if busy := (*BusyError)(nil); err != nil && !errors.As(err, &busy) {
		t.Errorf("%v, want a BusyError", err)
	}
	t.Logf("the second: %v", err)
	if err := <-done; err != nil {
		t.Error(err)
	}

	// Interrupted by the user: the node is left to itself, and says what it does.
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		r := b.request("slow", Switch)
		r.Confirm = 4 * time.Second
		r.Path = b.paths["slower"]
		_, err := b.a.Activate(ctx, b.name, b.host, r)
		done <- err
	}()
	waitFor(t, 20*time.Second, "the switch", func() bool { n := b.inspect(); return n.Last.Alive })
	cancel()
	err = <-done
	if sight := (*LostSightError)(nil); !errors.As(err, &sight) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	waitFor(t, 30*time.Second, "the node to go back", func() bool { n := b.inspect(); return !n.Last.Alive })
	b.is("slow", "slow")

	// Once it is confirmed, the node needs nobody.
	b.goTo("one")
	b.abandon("two", "waiting", time.Minute)
	b.l.Run(t, b.name, "touch /run/nixbench/activate/confirm")
	waitFor(t, 20*time.Second, "the node to commit", func() bool { n := b.inspect(); return !n.Last.Alive })
	b.is("two", "two")
}
