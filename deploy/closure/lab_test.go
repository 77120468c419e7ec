package closure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/e2e/lab"
	"github.com/nixbench/nixbench/nixeval"
)

func TestLab(t *testing.T) {
	if os.Getenv("NIXBENCH_E2E") == "" {
		t.Skip("needs NIXBENCH_E2E=1")
	}
	t.Setenv("NIX_CONFIG", fixture.NixConfig)
	l := lab.Start(t, 7, "--disk", "m2=60M")
	testLabFleet(t, l)
	t.Run("copy", func(t *testing.T) { t.Parallel(); testLabCopy(t, l) })
	t.Run("disk full", func(t *testing.T) { t.Parallel(); testLabFull(t, l) })
	t.Run("forwarding forbidden", func(t *testing.T) { t.Parallel(); testLabForbidden(t, l) })
	t.Run("untrusted", func(t *testing.T) { t.Parallel(); testLabUntrusted(t, l) })
	t.Run("build on target", func(t *testing.T) { t.Parallel(); testLabBuild(t, l) })
	t.Run("interrupted", func(t *testing.T) { t.Parallel(); testLabInterrupted(t, l) })
	t.Run("substitute", func(t *testing.T) { t.Parallel(); testLabSubstitute(t, l) })
}

// testLabFleet copies one closure to six nodes at once.
func testLabFleet(t *testing.T, l *lab.Lab) {
	out, _ := build(t, "fleet", 300, 10_000)
	c := newCounter(t)
	hosts := map[string]*remote.Host{}
	for _, m := range []string{"m1", "m3", "m4", "m5", "m6", "m7"} {
		hosts[m] = labHost(t, l, m, "root")
	}
	for _, want := range []int{301, 0} {
		begin := time.Now()
		var work sync.WaitGroup
		for m, h := range hosts {
			work.Go(func() {
				if got, err := c.Copy(t.Context(), m, h, out, ""); err != nil || got.Paths != want {
					t.Errorf("%s: %+v, %v", m, got, err)
				}
			})
		}
		work.Wait()
		t.Logf("six nodes, %d paths each, with the logins: %v", want, time.Since(begin).Round(time.Millisecond))
	}
	if len(c.argvs) != 1 {
		t.Errorf("local processes: %q", c.argvs)
	}
	for m, h := range hosts {
		if h.Handshakes() != 1 {
			t.Errorf("%s: %d logins", m, h.Handshakes())
		}
	}
}

func testLabCopy(t *testing.T, l *lab.Lab) {
	out, _ := build(t, "many", 300, 100_000)
	c, h := newCounter(t), labHost(t, l, "m1", "root")
	got := c.timed(t, "300 paths", "m1", h, out)
	if got.Paths != 301 || got.Bytes < 30_000_000 {
		t.Errorf("%+v", got)
	}
	valid(t, l, "m1", out)
	ran := len(c.argvs)
	if got := c.timed(t, "again", "m1", h, out); got != (Stats{}) || len(c.argvs) != ran {
		t.Errorf("%+v, %q", got, c.argvs[ran:])
	}
	told := c.of(event.NodeProgress)
	if last := told[len(told)-1]; len(told) < 3 || last.Done != last.Total || last.Total < 30_000_000 {
		t.Errorf("%d events, the last %+v", len(told), last)
	}
	for _, m := range c.of(event.Message) {
		t.Errorf("%+v", m)
	}
	nothingLeft(t, c.Dir)

	if _, err := c.Copy(t.Context(), "m1", h, out, "m1"); err != nil {
		t.Fatal(err)
	}
	l.Run(t, "m1", "nix-collect-garbage >/dev/null 2>&1")
	valid(t, l, "m1", out)
	c2, deploy := newCounter(t), labHost(t, l, "m1", "deploy")
	small, _ := build(t, "trusted", 3, 1000)
	l.Run(t, "m1", "usermod -aG nix-users deploy")
	c2.timed(t, "as a trusted user", "m1", deploy, small)
	if _, err := c.Copy(t.Context(), "m1", deploy, small, "m1"); err != nil {
		t.Fatal(err)
	}
	l.Run(t, "m1", "nix-collect-garbage >/dev/null 2>&1")
	valid(t, l, "m1", small)
	if got, err := c.Missing(t.Context(), "m1", h, []string{out}); err != nil || got.Paths != 301 {
		t.Errorf("the link was not replaced: %+v, %v", got, err)
	}
	if _, err := c.Copy(t.Context(), "m1", h, small, "m1"); err != nil {
		t.Fatal(err)
	}
	l.Run(t, "m1", "nix-collect-garbage >/dev/null 2>&1")
	valid(t, l, "m1", small)
}

// testLabFull fills a disk, makes room, and goes on.
func testLabFull(t *testing.T, l *lab.Lab) {
	out, _ := build(t, "mid", 10, 4_000_000)
	l.Run(t, "m2", "fallocate -l 35M /filler")
	c, h := newCounter(t), labHost(t, l, "m2", "root")
	_, err := c.Copy(t.Context(), "m2", h, out, "")
	var e *Error
	if !errors.As(err, &e) || !strings.Contains(err.Error(), "disk is full") || !strings.Contains(e.Hint(), "nix-collect-garbage") {
		t.Fatalf("%v", err)
	}
	t.Logf("%v\nhint: %s", err, e.Hint())
	noProcessLeft(t, c)
	// What is registered is whole.
	l.Run(t, "m2", `for p in /nix/store/*nixbench-mid*; do if nix-store --check-validity $p 2>/dev/null; then nix-store --verify-path $p || exit 1; fi; done`)
	rest, err := c.Missing(t.Context(), "m2", h, []string{out})
	if err != nil || rest.Paths >= 11 || !strings.Contains(e.Error(), fmt.Sprintf("(%d copied", 11-rest.Paths)) {
		t.Fatalf("%d paths are missing, %v", rest.Paths, err)
	}
	l.Run(t, "m2", "rm /filler")
	if got := c.timed(t, "with more room", "m2", h, out); got.Bytes != rest.Bytes {
		t.Errorf("%+v, and %d bytes were missing", got, rest.Bytes)
	}
	valid(t, l, "m2", out)
}

func testLabForbidden(t *testing.T, l *lab.Lab) {
	out, _ := build(t, "forbidden", 20, 10_000)
	l.Run(t, "m3", "echo AllowStreamLocalForwarding no >/etc/ssh/sshd_config.d/00-no.conf; systemctl reload ssh")
	c, h := newCounter(t), labHost(t, l, "m3", "root")
	if got := c.timed(t, "with a program on the node", "m3", h, out); got.Paths != 21 || h.Handshakes() != 1 {
		t.Errorf("%+v", got)
	}
	valid(t, l, "m3", out)
	big, _ := build(t, "big", 40, 4_000_000)
	ctx, cancel := context.WithCancelCause(t.Context())
	var once sync.Once
	var cancelled time.Time
	stopping := &Copier{Dir: c.Dir, Send: func(e event.Event) {
		if e.Done > 60_000_000 {
			once.Do(func() { cancelled = time.Now(); cancel(errTest) })
		}
	}}
	_, err := stopping.Copy(ctx, "m3", h, big, "")
	took := time.Since(cancelled)
	t.Logf("it ended %v after it was cancelled: %v", took.Round(time.Millisecond), err)
	if !errors.Is(err, errTest) || took > 4*time.Second {
		t.Errorf("%v after %v", err, took)
	}
	noProcessLeft(t, c)
}

func testLabUntrusted(t *testing.T, l *lab.Lab) {
	out, _ := build(t, "untrusted", 3, 1000)
	c, h := newCounter(t), labHost(t, l, "m4", "askpass")
	var e *Error
	// Debian lets only a group at the socket.
	_, err := c.Copy(t.Context(), "m4", h, out, "")
	t.Logf("%v", err)
	if !errors.As(err, &e) || !strings.Contains(e.Hint(), "its socket must be open to it") {
		t.Errorf("%+v", e)
	}
	h.Close()
	l.Run(t, "m4", "usermod -aG nix-users askpass")
	h = labHost(t, l, "m4", "askpass")
	_, err = c.Copy(t.Context(), "m4", h, out, "")
	if !errors.As(err, &e) || !strings.Contains(err.Error(), "does not trust askpass") || !strings.Contains(err.Error(), "not signed") || !strings.Contains(e.Hint(), "trusted-users") {
		t.Fatalf("%v", err)
	}
	t.Logf("%v\nhint: %s", err, e.Hint())
	for _, m := range c.of(event.Message) {
		t.Errorf("%+v", m)
	}
	// Paths that were signed may come from anybody.
	dir := t.TempDir()
	sh(t, "nix-store --generate-binary-cache-key nixbench-test "+dir+"/secret "+dir+"/public")
	public, _ := os.ReadFile(dir + "/public")
	l.Run(t, "m4", "echo 'extra-trusted-public-keys = "+string(public)+"' >>/etc/nix/nix.conf; systemctl restart nix-daemon")
	sh(t, "nix store sign -r -k "+dir+"/secret "+out)
	newCounter(t).timed(t, "signed paths", "m4", h, out)
	valid(t, l, "m4", out)
}

func sh(t testing.TB, script string) {
	t.Helper()
	if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

func testLabBuild(t *testing.T, l *lab.Lab) {
	c, h := newCounter(t), labHost(t, l, "m5", "root")
	expr := func(name, script string) string {
		return fmt.Sprintf(`derivation { name = "nixbench-%s"; system = builtins.currentSystem; builder = "/bin/sh";
		  src = builtins.toFile "src" "from here"; args = [ "-c" ''export PATH=/usr/bin:/bin; %s'' ]; }`, name, script)
	}
	good := instantiate(t, expr("on-target", "echo building on $(hostname); cp $src $out"))
	begin := time.Now()
	if err := c.BuildOnTarget(t.Context(), "m5", h, good, "", ""); err != nil {
		t.Fatal(err)
	}
	t.Logf("built in %v", time.Since(begin))
	if got := l.Run(t, "m5", "cat $(nix-store -q --outputs "+good+")"); got != "from here" {
		t.Errorf("%q", got)
	}
	isCopy := func(e event.Event) bool { return e.Phase == event.Copy }
	logs := slices.DeleteFunc(c.of(event.NodeLog), isCopy)
	if len(logs) != 1 || logs[0].Text != "building on m5" || logs[0].Path != good || logs[0].Phase != event.Build || logs[0].Node != "m5" {
		t.Errorf("%+v", logs)
	}
	begin, ran := time.Now(), len(c.argvs)
	if err := c.BuildOnTarget(t.Context(), "m5", h, good, "", ""); err != nil || len(c.argvs) != ran {
		t.Errorf("%v, %q", err, c.argvs[ran:])
	}
	t.Logf("again in %v", time.Since(begin))

	bad := instantiate(t, expr("broken", "echo one; echo two; exit 3"))
	err := c.BuildOnTarget(t.Context(), "m5", h, bad, "", "")
	var failed *nixeval.BuildError
	if !errors.As(err, &failed) || len(failed.Failures) != 1 || failed.Failures[0].Drv != bad || strings.Join(failed.Failures[0].Log, " ") != "one two" {
		t.Errorf("%v", err)
	} else {
		t.Logf("%v\n%v", err, failed.Failures[0])
	}

	slow := instantiate(t, expr("slow", "echo started; sleep 4321"))
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for len(slices.DeleteFunc(c.of(event.NodeLog), isCopy)) < 4 && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		cancel(errTest)
	}()
	if err := c.BuildOnTarget(ctx, "m5", h, slow, "", ""); !errors.Is(err, errTest) {
		t.Errorf("%v", err)
	}
	l.Run(t, "m5", `for i in $(seq 50); do pgrep -f '[s]leep 4321' >/dev/null || exit 0; sleep 0.1; done; pgrep -af '[s]leep 4321'; exit 1`)
}

// testLabInterrupted cancels a copy, then loses its connection, then finishes it.
func testLabInterrupted(t *testing.T, l *lab.Lab) {
	out, _ := build(t, "big", 40, 4_000_000)
	c := newCounter(t)
	missing := func() int64 {
		missing, err := c.Missing(t.Context(), "m6", labHost(t, l, "m6", "root"), []string{out})
		if err != nil {
			t.Fatal(err)
		}
		return missing.Bytes
	}
	all := missing()
	ctx, cancel := context.WithCancelCause(t.Context())
	var once sync.Once
	var cancelled time.Time
	send := c.Send
	c.Send = func(e event.Event) {
		send(e)
		if e.Done > 60_000_000 { // the log runs ahead of what has arrived
			once.Do(func() { cancelled = time.Now(); cancel(errTest) })
		}
	}
	_, err := c.Copy(ctx, "m6", labHost(t, l, "m6", "root"), out, "")
	took := time.Since(cancelled)
	t.Logf("it ended %v after it was cancelled: %v", took.Round(time.Millisecond), err)
	if !errors.Is(err, errTest) || took > 4*time.Second {
		t.Errorf("%v after %v", err, took)
	}
	noProcessLeft(t, c)
	left := missing()
	if left >= all {
		t.Errorf("%d of %d bytes are missing", left, all)
	}

	c.Send = send
	begin := time.Now()
	_, err = c.Copy(t.Context(), "m6", labHost(t, l, "m6", "root", "NIXBENCH_TEST_CUT=30000000"), out, "")
	t.Logf("lost after %v: %v", time.Since(begin).Round(time.Millisecond), err)
	var lost *remote.LostError
	if !errors.As(err, &lost) {
		t.Errorf("%v", err)
	}
	noProcessLeft(t, c)
	if again := missing(); again >= left {
		t.Errorf("%d bytes were missing, then %d", left, again)
	} else {
		left = again
	}

	got := c.timed(t, "the rest", "m6", labHost(t, l, "m6", "root"), out)
	if got.Bytes != left {
		t.Errorf("%+v, and %d bytes were missing", got, left)
	}
	valid(t, l, "m6", out)
}

func noProcessLeft(t testing.TB, c *counter) {
	t.Helper()
	if procs, _ := exec.Command("pgrep", "-af", c.Dir).Output(); len(procs) > 0 {
		t.Errorf("processes are left: %s", procs)
	}
	nothingLeft(t, c.Dir)
}

// testLabSubstitute has the node fetch from a cache of its own.
func testLabSubstitute(t *testing.T, l *lab.Lab) {
	out, _ := build(t, "cached", 3, 1000)
	dir := t.TempDir()
	sh(t, "nix copy --to 'file://"+dir+"/cache?compression=none' "+out)
	sh(t, "tar -C "+dir+" -cf "+dir+"/cache.tar cache")
	data, err := os.Open(dir + "/cache.tar")
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	cmd := l.SSH(t.Context(), "m7", "tar -C /root -xf -; printf 'substituters = file:///root/cache\\nrequire-sigs = false\\n' >>/etc/nix/nix.conf; systemctl restart nix-daemon")
	cmd.Stdin = data
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c, h := newCounter(t), labHost(t, l, "m7", "root")
	c.Substitute = true
	c.timed(t, "substituted", "m7", h, out)
	valid(t, l, "m7", out)
	// The local settings, which have no caches, do not replace those of the node.
	if logged := c.of(event.NodeLog); len(logged) == 0 || !strings.HasPrefix(logged[0].Text, "copying path '/nix/store/") {
		t.Errorf("%+v", logged)
	}
	c.Substitute = false
	l.Run(t, "m7", "nix-store --delete "+out+" 2>&1")
	c.timed(t, "not substituted", "m7", h, out)
	valid(t, l, "m7", out)
}
