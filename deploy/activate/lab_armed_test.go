package activate

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func testCut(t *testing.T, b *bench) {
	b.goTo("one")
	res, err := b.fails(b.request("cut", Switch))
	if !res.RolledBack() || !strings.Contains(err.Error(), "no client could log in to confirm it within 8s; the node rolled back to "+b.paths["one"]+" automatically") {
		t.Errorf("%+v\n%v", res, err)
	}
	b.is("one", "one")
	b.goTo("two")
	b.is("two", "two")

	// A full disk is detected before anything changes.
	b.l.Run(t, b.name, "dd if=/dev/zero of=/var/filler bs=64k 2>/dev/null; dd if=/dev/zero of=/var/filler2 bs=1 count=70000 2>/dev/null; df /var | tail -n 1")
	_, full := b.a.Activate(t.Context(), b.name, b.host, b.request("three", Switch))
	if full == nil || !strings.Contains(full.Error(), "cannot write the record of the switch") || !strings.Contains(full.Error(), "No space left on device") {
		t.Error(full)
	}
	b.l.Run(t, b.name, "rm /var/filler*")
	b.is("two", "two")
	b.goTo("three")
	b.is("three", "three")
}

// testLate switches to a system whose units fail after switch-to-configuration has returned. The
// node must roll back, and the error must contain the texts.
func testLate(system string, want ...string) func(*testing.T, *bench) {
	return func(t *testing.T, b *bench) {
		b.goTo("simple")
		r := b.request(system, Switch)
		r.SettleTime = 3 * time.Second
		res, err := b.fails(r)
		if !res.RolledBack() {
			t.Errorf("%+v", res)
		}
		for _, text := range want {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%v\nwant %s", err, text)
			}
		}
		b.is("simple", "simple")
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
	// A slow switch does not count as hanging.
	r := b.request("slow", Switch)
	r.Confirm = 3 * time.Second
	b.must(r)
	b.is("slow", "slow")
}

// abandon starts a run whose client is killed before it confirms.
func (b *bench) abandon(system, phase string, confirm time.Duration) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	h := labHost(b.t, b.l, b.name, "root")
	a := &Activator{Send: b.rec.add}
	r := b.request(system, Switch)
	r.Confirm = confirm
	w := a.newWatch(b.name, h, r.Run, r.Confirm)
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
	// The next run finishes it, even if the system is already active.
	if res := b.goTo("two"); res.PreviousRun == nil || !res.PreviousRun.Rebooted || res.Changed {
		t.Errorf("%+v", res)
	}
	b.is("two", "two")
	b.abandon("slow", "switching", time.Minute)
	b.l.PowerCut(t, b.name)
	b.l.PowerOn(t, b.name)
	b.host = labHost(t, b.l, b.name, "root")
	if _, err := b.a.FinishPrevious(t.Context(), b.name, b.host, "", nil); err != nil {
		t.Error(err)
	}
	b.is("two", "two")
	b.host = labHost(t, b.l, b.name, "root")
	b.goTo("three")
	b.is("three", "three")
}

func testKilled(t *testing.T, b *bench) {
	b.goTo("one")

	// Client killed before the confirmation: the node rolls back.
	b.abandon("two", "waiting", 5*time.Second)
	waitFor(t, 20*time.Second, "the node to go back", func() bool { n := b.inspect(); return !n.Last.Alive })
	b.is("one", "one")
	if n := b.inspect(); n.Last.Outcome != RolledBack || n.Last.Reason != reasonUnconfirmed {
		t.Errorf("%+v", n.Last)
	}

	// The next run to the same system confirms it; a run to another system aborts it.
	b.abandon("slow", "switching", time.Minute)
	res := b.goTo("slow")
	if res.PreviousRun == nil || res.PreviousRun.Outcome != Committed || res.Changed {
		t.Errorf("%+v", res)
	}
	b.is("slow", "slow")
	b.abandon("three", "waiting", time.Minute)
	res = b.goTo("one")
	if res.PreviousRun == nil || res.PreviousRun.Outcome != RolledBack || !res.Changed {
		t.Errorf("%+v", res)
	}
	b.is("one", "one")

	// The run itself is killed, or stopped.
	for _, command := range []string{"kill -s KILL", "stop"} {
		b.abandon("two", "waiting", time.Minute)
		b.l.Run(t, b.name, "systemctl "+command+" nixbench-activate")
		waitFor(t, 20*time.Second, "the node to go back", func() bool { n := b.inspect(); return !n.Last.Alive })
		b.is("one", "one")
	}

	// The connection breaks while the switch runs.
	earlier := len(b.rec.log())
	done := make(chan error, 1)
	go func() {
		_, err := b.a.Activate(t.Context(), b.name, b.host, b.request("slow", Switch))
		done <- err
	}()
	waitFor(t, 20*time.Second, "the switch", func() bool { return strings.Contains(b.rec.log()[earlier:], "step 3") })
	b.l.SSH(t.Context(), b.name, "pkill -KILL -f '^sshd-session: root@notty'").Run() // kills its own, too
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := strings.Count(b.rec.log()[earlier:], "step 8\n"); n != 1 {
		t.Errorf("a line of the log came %d times\n%s", n, b.rec.log())
	}
	b.is("slow", "slow")

	// Two runs at the same time: the error of the second names the first.
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
	b.goTo("slow") // the second run has switched the node if the first one ended in time

	// Interrupted by the user: the node completes the run, and the error describes that.
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

	// After the confirmation the node needs no client.
	b.goTo("one")
	b.abandon("two", "waiting", time.Minute)
	b.l.Run(t, b.name, ": >/run/nixbench/activate/confirm; : >/run/nixbench/activate/confirm-again")
	waitFor(t, 20*time.Second, "the node to commit", func() bool { n := b.inspect(); return !n.Last.Alive })
	b.is("two", "two")
}
