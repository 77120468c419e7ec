package activate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
	"github.com/nixbench/nixbench/deploy/remote/sshtest"
)

const (
	oldPath = "/nix/store/aaa-nixos-system-old"
	newPath = "/nix/store/bbb-nixos-system-new"
)

// fakeNode replaces the script.
type fakeNode struct {
	mu      sync.Mutex
	node    map[string]string // output of inspect
	run     map[string]string
	extra   []string
	called  []string
	refuses string // output of dry
	start   func(e *sshtest.Exec, f *fakeNode) int
	confirm func(e *sshtest.Exec, f *fakeNode) int
}

func newFakeNode() *fakeNode {
	return &fakeNode{node: map[string]string{
		"nixos": "yes", "current": oldPath, "booted": oldPath, "profile": oldPath, "link": "system-7-link", "boot-id": "one",
		"uptime": "5", "system": "running", "wanted": newPath,
	}}
}

func (f *fakeNode) inspect(w io.Writer) {
	for k, v := range f.node {
		fmt.Fprintf(w, "%s=%s\n", k, v)
	}
	for k, v := range f.run {
		fmt.Fprintf(w, "run-%s=%s\n", k, v)
	}
	for _, line := range f.extra {
		fmt.Fprintln(w, line)
	}
	fmt.Fprintln(w, "end=yes")
}

// became sets the state after a successful run.
func (f *fakeNode) became(run string) {
	f.node["current"], f.node["profile"], f.node["link"] = newPath, newPath, "system-8-link"
	f.run = map[string]string{"run": run, "phase": "done", "outcome": "committed", "goal": "switch", "from": oldPath,
		"path": newPath, "to": newPath, "code": "0", "boot": "one"}
}

func (f *fakeNode) waits(run string) {
	f.node["current"] = newPath
	f.run = map[string]string{"run": run, "phase": "waiting", "goal": "switch", "from": oldPath, "path": newPath, "to": newPath, "code": "0", "boot": "one", "alive": "yes"}
}

func (f *fakeNode) handle(ctx context.Context, e *sshtest.Exec) int {
	script, _ := io.ReadAll(e.Stdin)
	var args []string
	if len(e.Argv) < 6 || !slices.Equal(e.Argv, scriptArgv(string(script), e.Argv[5:])) {
		fmt.Fprintf(e.Stderr, "unexpected %q\n", e.Argv)
		return 1
	}
	args = e.Argv[5:]
	if string(script) != selectScript(args[0]) {
		fmt.Fprintln(e.Stderr, "this is not the script")
		return 1
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.called = append(f.called, strings.Join(args, " "))
	switch args[0] {
	case "inspect":
		f.inspect(e.Stdout)
	case "dry":
		if f.refuses != "" {
			io.WriteString(e.Stdout, f.refuses)
			return 1
		}
		io.WriteString(e.Stdout, "would stop the following units: a.service, b.service\nwould activate the configuration...\n"+
			"would reload the following units: dbus.service\nwould start the following units: b.service\n")
	case "start":
		return f.start(e, f)
	case "confirm", "confirm-again", "abort", "follow":
		return f.confirm(e, f)
	default:
		return 1
	}
	return 0
}

// fake starts an SSH server that acts as the node, and returns a host that connects to it.
func fake(t *testing.T, f *fakeNode) (*sshtest.Server, *remote.Host) {
	t.Helper()
	refuse := func(e *sshtest.Exec, f *fakeNode) int {
		fmt.Fprintf(e.Stderr, "unexpected %q\n", f.called[len(f.called)-1])
		return 1
	}
	if f.start == nil {
		f.start = refuse
	}
	if f.confirm == nil {
		f.confirm = refuse
	}
	s, err := sshtest.Start(sshtest.Options{Handler: f.handle})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	key := t.TempDir() + "/key"
	if err := os.WriteFile(key, sshtest.GeneratePrivateKey(), 0o600); err != nil {
		t.Fatal(err)
	}
	h := remote.NewHost(sshconfig.Config{Node: "web-1", HostName: "127.0.0.1", Port: s.Port(), User: "root", Network: "tcp",
		IdentityFiles: []string{key}, IdentitiesOnly: true, HostKeys: []ssh.PublicKey{s.Key()}}, remote.Options{})
	t.Cleanup(func() { h.Close() })
	return s, h
}

func request() Request {
	return Request{Run: "r1", Path: newPath, Goal: Switch, Confirm: 8 * time.Second, ReplaceUnknown: true}
}

func TestSwitchTakesThreeCommandsAndTwoHandshakes(t *testing.T) {
	f := newFakeNode()
	f.start = func(e *sshtest.Exec, f *fakeNode) int {
		io.WriteString(e.Stdout, "beat=\nlog=activating the configuration...\nlog=odd=line\n")
		f.waits("r1")
		f.inspect(e.Stdout)
		return 0
	}
	f.confirm = func(e *sshtest.Exec, f *fakeNode) int {
		f.became("r1")
		f.inspect(e.Stdout)
		return 0
	}
	s, h := fake(t, f)
	rec := &recorder{}
	res, err := (&Activator{Send: rec.add}).Activate(t.Context(), "web-1", h, request())
	if err != nil {
		t.Fatal(err)
	}
	if !res.Changed || res.Outcome != Committed || res.After.Generation != 8 || res.Before.Generation != 7 || res.Exit != 0 {
		t.Errorf("%+v", res)
	}
	want := []string{"inspect " + newPath + "  ", "start r1 switch " + newPath + "  8   0  0", "confirm r1 2"}
	if diff := cmp.Diff(want, f.called); diff != "" {
		t.Error(diff)
	}
	if s.Handshakes() != 2 || rec.log() != "activating the configuration...\nodd=line\n" {
		t.Errorf("%d handshakes, log %q", s.Handshakes(), rec.log())
	}
}

// AfterLogin is called once, after the login that confirms the switch, while the node watches the started services.
// Activate does not return before it. Without a confirmation it is not called.
func TestAfterLogin(t *testing.T) {
	called := make(chan struct{})
	f := newFakeNode()
	f.start = func(e *sshtest.Exec, f *fakeNode) int {
		f.waits("r1")
		f.inspect(e.Stdout)
		return 0
	}
	f.confirm = func(e *sshtest.Exec, f *fakeNode) int {
		if f.run["phase"] == "waiting" {
			io.WriteString(e.Stdout, "accepted=yes\nbeat=\nlog=watching for 3s the started services\n")
			select {
			case <-called:
			case <-time.After(5 * time.Second):
				t.Error("AfterLogin was not called while the services were watched")
			}
			f.run["phase"] = "confirmed"
		} else {
			f.became("r1")
		}
		f.inspect(e.Stdout)
		return 0
	}
	_, h := fake(t, f)
	calls, ended := 0, false
	r := request()
	r.AfterLogin = func(context.Context) {
		calls++
		close(called)
		time.Sleep(100 * time.Millisecond)
		ended = true
	}
	if res, err := (&Activator{}).Activate(t.Context(), "web-1", h, r); err != nil || res.Outcome != Committed || calls != 1 || !ended {
		t.Errorf("%v, %v, %d calls, ended: %v", res.Outcome, err, calls, ended)
	}

	f = newFakeNode()
	f.start = func(e *sshtest.Exec, f *fakeNode) int {
		f.became("r1")
		f.run["outcome"] = string(RolledBack)
		f.inspect(e.Stdout)
		return 0
	}
	_, h = fake(t, f)
	r.AfterLogin = func(context.Context) { t.Error("AfterLogin was called for a switch that failed") }
	if _, err := (&Activator{}).Activate(t.Context(), "web-1", h, r); err == nil {
		t.Error("a rolled back switch is no error")
	}
}

func TestLostConnection(t *testing.T) {
	f := newFakeNode()
	var s *sshtest.Server
	f.start = func(e *sshtest.Exec, f *fakeNode) int {
		io.WriteString(e.Stdout, "log=one\nlog=two\n")
		f.waits("r1")
		f.run["phase"] = "switching"
		time.Sleep(50 * time.Millisecond)
		go s.Drop()
		time.Sleep(50 * time.Millisecond)
		return 0
	}
	f.confirm = func(e *sshtest.Exec, f *fakeNode) int {
		if e.Argv[5] == "confirm" {
			f.became("r1")
		} else {
			io.WriteString(e.Stdout, "log=three\n")
			f.waits("r1")
		}
		f.inspect(e.Stdout)
		return 0
	}
	s, h := fake(t, f)
	rec := &recorder{}
	if _, err := (&Activator{Send: rec.add}).Activate(t.Context(), "web-1", h, request()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(f.called[2:], ";"); got != "follow r1 2;confirm r1 3" || rec.log() != "one\ntwo\nthree\n" {
		t.Errorf("%q, log %q", got, rec.log())
	}
}

// wire is a connection that can be cut without an error: no data arrives any more.
type wire struct {
	net.Conn
	cut    atomic.Bool
	closed chan struct{}
	once   sync.Once
}

func (w *wire) Write(p []byte) (int, error) {
	if w.cut.Load() {
		return len(p), nil
	}
	return w.Conn.Write(p)
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if w.cut.Load() {
		<-w.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (w *wire) Close() error {
	w.once.Do(func() { close(w.closed) })
	return w.Conn.Close()
}

// While the network is cut, the wait is reported. Afterwards the old connection is not used any
// more, since it would be silent for long.
func TestCutConnection(t *testing.T) {
	f := newFakeNode()
	var first atomic.Pointer[wire]
	refused := 3
	f.start = func(e *sshtest.Exec, f *fakeNode) int {
		io.WriteString(e.Stdout, "log=one\n")
		time.Sleep(50 * time.Millisecond)
		first.Load().cut.Store(true)
		return 0
	}
	f.confirm = func(e *sshtest.Exec, f *fakeNode) int {
		f.waits("r1")
		f.node["current"] = oldPath
		f.run["phase"], f.run["outcome"], f.run["reason"] = "done", "rolled-back", "unconfirmed"
		f.inspect(e.Stdout)
		return 0
	}
	s, _ := fake(t, f)
	key := t.TempDir() + "/key"
	if err := os.WriteFile(key, sshtest.GeneratePrivateKey(), 0o600); err != nil {
		t.Fatal(err)
	}
	h := remote.NewHost(sshconfig.Config{Node: "web-1", HostName: "127.0.0.1", Port: s.Port(), User: "root", Network: "tcp",
		IdentityFiles: []string{key}, IdentitiesOnly: true, HostKeys: []ssh.PublicKey{s.Key()}}, remote.Options{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if first.Load() != nil && refused > 0 {
				refused--
				return nil, errors.New("no route to host")
			}
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			w := &wire{Conn: c, closed: make(chan struct{})}
			first.CompareAndSwap(nil, w)
			return w, nil
		}})
	t.Cleanup(func() { h.Close() })
	rec := &recorder{}
	begin := time.Now()
	res, err := (&Activator{Send: rec.add}).Activate(t.Context(), "web-1", h, request())
	if !res.RolledBack() {
		t.Fatalf("%+v, %v", res, err)
	}
	var told []string
	for _, e := range rec.events {
		if e.Kind == event.Waiting || e.Kind == event.WaitEnd {
			told = append(told, string(e.Kind)+" "+e.Text)
			if e.Kind == event.Waiting && (e.Node != "web-1" || e.Time.Sub(e.Since) < event.Grace || (e.Until.Sub(e.Since)-computePatience(8*time.Second)).Abs() > time.Second) {
				t.Errorf("%+v", e)
			}
			if e.Time.Sub(begin) > 4*time.Second && len(told) == 1 {
				t.Errorf("the first word came after %v", e.Time.Sub(begin))
			}
		}
	}
	const meanwhile = "; it rolls back unless confirmed"
	const refusal = ": no route to host"
	if len(told) != 4 || told[0] != "wait no output from the node"+meanwhile || !strings.HasPrefix(told[1], "wait unreachable"+meanwhile+": web-1: nixbench-activate start") ||
		!strings.HasPrefix(told[2], "wait unreachable"+meanwhile+refusal) || !strings.HasPrefix(told[3], "wait-end unreachable"+meanwhile+refusal) {
		t.Errorf("%s", strings.Join(told, "\n"))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := (&Activator{}).Inspect(ctx, "web-1", h, Full); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// The wait for a reboot has the reason of the last attempt, and the time limit.
func TestWaitForBootHasReason(t *testing.T) {
	s, h := fake(t, newFakeNode())
	s.Close()
	rec := &recorder{}
	ctx, cancel := context.WithTimeout(t.Context(), event.Grace+500*time.Millisecond)
	defer cancel()
	if n, err := (&Activator{Send: rec.add}).WaitForBoot(ctx, "web-1", h, "one", time.Time{}); err == nil {
		t.Errorf("%+v", n)
	}
	e := rec.events[0]
	until, _ := ctx.Deadline()
	if e.Kind != event.Waiting || !e.Until.Equal(until) || e.Text != "connect: connection refused; waits for the node to accept logins after its reboot" {
		t.Errorf("%+v", e)
	}
}

// offHost is a node whose machine is off until it is started.
type offHost struct {
	Host
	on bool
}

func (h *offHost) Fresh(ctx context.Context) (*remote.Conn, error) {
	if !h.on {
		return nil, remote.NewUnreachableError("web-1", "web-1:22", "off", errors.New("no route to host"))
	}
	return h.Host.Fresh(ctx)
}

// The wait for a reboot starts a machine that libvirt has not started again, and says why it cannot.
func TestWaitForBootStartsMachine(t *testing.T) {
	_, h := fake(t, newFakeNode())
	off := &offHost{Host: h}
	starts := 0
	start := func(context.Context, string) error {
		if starts++; starts == 1 {
			return errors.New("no free loop device")
		}
		off.on = true
		return nil
	}
	a := &Activator{StartMachine: start}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if n, err := a.WaitForBoot(ctx, "web-1", off, "zero", time.Time{}); err != nil || starts != 2 || n.BootID != "one" {
		t.Errorf("%+v, %v; %d starts", n, err, starts)
	}

	off.on, starts = false, 0
	a.StartMachine = func(context.Context, string) error { return errors.New("no free loop device") }
	ctx, cancel = context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := a.WaitForBoot(ctx, "web-1", off, "zero", time.Time{}); err == nil || err.Error() != "no free loop device" {
		t.Errorf("err = %v", err)
	}
}

// A start without output is ended on the node. Whether it has begun the run, or will, is not known.
func TestQuietStart(t *testing.T) {
	f := newFakeNode()
	ended := make(chan string, 1)
	f.start = func(e *sshtest.Exec, f *fakeNode) int {
		signal, ok := "", false
		for !ok {
			select {
			case signal, ok = <-e.Signals:
			case <-time.After(3 * time.Second):
				ok = true
			}
		}
		ended <- signal
		return 1
	}
	f.confirm = func(e *sshtest.Exec, f *fakeNode) int {
		fmt.Fprintln(e.Stderr, "there was no run")
		return 1
	}
	_, h := fake(t, f)
	a := &Activator{}
	w := a.newWatch("web-1", h, "r1", 8*time.Second)
	w.silence = 100 * time.Millisecond
	err := wrapLostSightError(t.Context(), "web-1", request(), w, w.follow(t.Context(), false, "start", "r1"))
	if lost := (*LostSightError)(nil); !errors.As(err, &lost) || !strings.Contains(err.Error(), "there was no run") {
		t.Errorf("%v", err)
	}
	if got := <-ended; got != "TERM" {
		t.Errorf("the command was ended with %q", got)
	}
}

func TestErrors(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*fakeNode)
		r      func(*Request)
		want   string
	}{
		"not NixOS":      {change: func(f *fakeNode) { f.node["nixos"] = "no" }, want: "web-1: not a NixOS system: it has no /etc/NIXOS"},
		"no system":      {change: func(f *fakeNode) { delete(f.node, "wanted") }, want: "web-1: " + newPath + " is no NixOS system in the node's store: it has no bin/switch-to-configuration"},
		"specialisation": {change: func(f *fakeNode) { delete(f.node, "wanted") }, r: func(r *Request) { r.Specialisation = "x" }, want: "web-1: " + newPath + " has no specialisation x: it has none"},
		"unknown":        {r: func(r *Request) { r.ReplaceUnknown = false }, want: "web-1: the node has " + oldPath + ", which was not deployed from here, and deployment.replaceUnknownProfiles is false"},
		"busy":           {change: func(f *fakeNode) { f.start = func(*sshtest.Exec, *fakeNode) int { return 75 } }, want: "web-1: another run is switching the node"},
		"watched": {change: func(f *fakeNode) {
			f.run = map[string]string{"run": "r0", "phase": "switching", "alive": "yes", "seen": "1", "to": newPath}
		}, want: "web-1: run r0 is switching the node to " + newPath},
		"injects": {r: func(r *Request) { r.Run = "a\nb" }, want: `web-1: activate: bad run, path or specialisation: "a\nb" "` + newPath + `" ""`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeNode()
			if test.change != nil {
				test.change(f)
			}
			_, h := fake(t, f)
			r := request()
			if test.r != nil {
				test.r(&r)
			}
			_, err := (&Activator{}).Activate(t.Context(), "web-1", h, r)
			if err == nil || err.Error() != test.want {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
			for _, c := range f.called {
				if name != "busy" && strings.HasPrefix(c, "start") {
					t.Error("something was started")
				}
			}
		})
	}
}

func TestFailures(t *testing.T) {
	for name, test := range map[string]struct {
		run  map[string]string
		unit string
		want string
	}{
		"unit": {map[string]string{"outcome": "rolled-back", "reason": "switch", "code": "4", "broken": "b.service "}, "unit=b.service it burns\n",
			"web-1: switch to " + newPath + ": unit b.service failed; the node rolled back to " + oldPath + "\nb.service:\n  it burns"},
		"script": {map[string]string{"outcome": "rolled-back", "reason": "switch", "code": "2"}, "log=ouch\n",
			"web-1: switch to " + newPath + ": the activation script failed (exit 2); the node rolled back to " + oldPath + "\n  ouch"},
		"unconfirmed": {map[string]string{"outcome": "rolled-back", "reason": "unconfirmed", "code": "0"}, "",
			"web-1: switch to " + newPath + ": no client could log in to confirm it within 8s; the node rolled back to " + oldPath + " automatically"},
		"hung": {map[string]string{"outcome": "rolled-back", "reason": "hung", "code": "hung", "jobs": "start a.service, "}, "",
			"web-1: switch to " + newPath + ": no progress for 8s (start a.service): a slow switch needs a longer --timeout confirm=DURATION; the node rolled back to " + oldPath},
		"worst": {map[string]string{"outcome": "rollback-failed", "reason": "switch, and the rollback ended with 2", "code": "1"}, "",
			"web-1: switch to " + newPath + ": switch-to-configuration failed (exit 1); rollback to " + oldPath + " FAILED: check the node"},
		"locked": {map[string]string{"outcome": "failed", "reason": "locked", "code": "11"}, "",
			"web-1: switch to " + newPath + ": another switch is running on the node (exit 11): try again when it is done"},
		"elsewhere": {map[string]string{"outcome": "committed", "code": "0"}, "",
			"web-1: switch to " + newPath + ": the switch succeeded, but the node runs " + oldPath + " and would boot " + oldPath},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeNode()
			f.start = func(e *sshtest.Exec, f *fakeNode) int {
				f.waits("r1")
				f.node["current"] = oldPath
				f.run["phase"] = "done"
				for k, v := range test.run {
					f.run[k] = v
				}
				io.WriteString(e.Stdout, test.unit)
				f.inspect(e.Stdout)
				return 0
			}
			_, h := fake(t, f)
			res, err := (&Activator{}).Activate(t.Context(), "web-1", h, request())
			var failed *FailedError
			if !errors.As(err, &failed) || err.Error() != test.want {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
			if res.RolledBack() != (test.run["outcome"] == "rolled-back") {
				t.Errorf("%+v", res)
			}
		})
	}
}

func TestDryActivate(t *testing.T) {
	f := newFakeNode()
	_, h := fake(t, f)
	r := request()
	r.Goal, r.ReplaceUnknown, r.Run = DryActivate, false, ""
	res, err := (&Activator{}).Activate(t.Context(), "web-1", h, r)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"stop a.service, b.service", "reload dbus.service", "start b.service"}
	if diff := cmp.Diff(want, res.Dry); diff != "" || len(res.Log) != 4 {
		t.Error(diff, res.Log)
	}
	if unknown := (*UnknownProfileError)(nil); !errors.As(res.Refused, &unknown) || unknown.Path != oldPath {
		t.Errorf("it does not tell that a switch would be refused: %v", res.Refused)
	}
	if slices.ContainsFunc(f.called, func(c string) bool { return !strings.HasPrefix(c, "dry ") && !strings.HasPrefix(c, "inspect ") }) {
		t.Errorf("%q", f.called)
	}
}

// The error contains the output of a system whose dry-activate fails.
func TestDryActivateRefused(t *testing.T) {
	f := newFakeNode()
	f.refuses = "The disk is too small.\nPre-switch check 'disk' failed\n"
	_, h := fake(t, f)
	r := request()
	r.Goal, r.Run = DryActivate, ""
	if _, err := (&Activator{}).Activate(t.Context(), "web-1", h, r); err == nil || !strings.HasSuffix(err.Error(), "\n  The disk is too small.\n  Pre-switch check 'disk' failed") {
		t.Error(err)
	}
}

func TestNeeds(t *testing.T) {
	node := func(current, profile string, last *Run) Node {
		return Node{Current: current, Profile: profile, desired: newPath, Last: last}
	}
	cutOff := &Run{path: newPath, Goal: Switch, phase: "committing"}
	for _, test := range []struct {
		node Node
		goal Goal
		want Goal
	}{
		{node(oldPath, oldPath, nil), Switch, Switch},
		{node(newPath, newPath, nil), Switch, ""},
		{node(newPath, oldPath, nil), Switch, Boot},
		{node(oldPath, newPath, nil), Switch, Switch},
		{node(newPath, newPath, cutOff), Switch, Boot},
		{node(oldPath, newPath, cutOff), Boot, Boot},
		{node(oldPath, newPath, nil), Boot, ""},
		{node(newPath, oldPath, nil), Test, ""},
		{node(oldPath, newPath, nil), Test, Test},
	} {
		if got := (Request{Path: newPath, Goal: test.goal}).remainingGoal(test.node); got != test.want {
			t.Errorf("%s with %+v: %q, want %q", test.goal, test.node, got, test.want)
		}
	}
}

func TestAt(t *testing.T) {
	const special = newPath + "-special"
	for _, test := range []struct {
		node Node
		runs string
		want bool
	}{
		{Node{Current: newPath, Profile: newPath}, newPath, true},
		{Node{Current: special, Profile: newPath}, special, true},
		{Node{Current: special, Profile: newPath}, newPath, false},
		{Node{Current: newPath, Profile: newPath}, special, false},
		{Node{Current: special, Profile: oldPath}, special, false},
		{Node{Current: special, Profile: newPath, Last: &Run{phase: "waiting"}}, special, false},
	} {
		if got := test.node.HasReached(Switch, newPath, test.runs); got != test.want {
			t.Errorf("%+v, to run %s: %v", test.node, test.runs, got)
		}
	}
}

func TestRefuses(t *testing.T) {
	strict := Request{Path: newPath, Goal: Switch, Known: []string{"/known"}}
	for _, test := range []struct {
		node Node
		r    Request
		want string // the path that must not be replaced
	}{
		{Node{Current: oldPath, Profile: oldPath}, strict, oldPath},
		{Node{Current: oldPath, Profile: oldPath}, Request{Path: newPath, ReplaceUnknown: true}, ""},
		{Node{Current: "/known", Profile: "/known"}, strict, ""},
		{Node{Current: "/known", Profile: oldPath}, strict, oldPath},
		{Node{Current: oldPath, Profile: oldPath, Deployed: []string{oldPath}}, strict, ""},
		{Node{Current: "/special", Profile: newPath}.WithDesired("/special"), strict, ""},
	} {
		var unknown *UnknownProfileError
		got := ""
		if errors.As(test.r.CheckReplaceable("web-1", test.node), &unknown) {
			got = unknown.Path
		}
		if got != test.want {
			t.Errorf("%+v: refuses %q, want %q", test.node, got, test.want)
		}
	}
}

func TestGenerations(t *testing.T) {
	f := newFakeNode()
	f.extra = []string{
		"generation=/nix/var/nix/profiles/system-10-link 1700000100 " + newPath + " 25.05 (Warbler)",
		"generation=/nix/var/nix/profiles/system-7-link 1700000000 " + oldPath + " ",
		"failed=b.service a.service ", "deployed=" + oldPath,
	}
	_, h := fake(t, f)
	n, err := (&Activator{}).Inspect(t.Context(), "web-1", h, Full)
	if err != nil {
		t.Fatal(err)
	}
	want := []Generation{
		{Number: 7, Path: oldPath, Time: time.Unix(1700000000, 0), Current: true, Booted: true, Default: true},
		{Number: 10, Path: newPath, Time: time.Unix(1700000100, 0), Version: "25.05 (Warbler)"},
	}
	if diff := cmp.Diff(want, n.Generations); diff != "" {
		t.Error(diff)
	}
	if n.Generation != 7 || n.GenerationOf(newPath) != 10 || !slices.Equal(n.Failed, []string{"a.service", "b.service"}) {
		t.Errorf("%+v", n)
	}
}

func TestRunInWords(t *testing.T) {
	run := Run{Goal: Switch, From: "/old", To: "/new"}
	with := func(change func(*Run)) Run { r := run; change(&r); return r }
	for want, r := range map[string]Run{
		"switch to /new: done": with(func(r *Run) { r.Outcome = Committed }),
		"switch to /new: rolled back to /old: no client confirmed it":                                        with(func(r *Run) { r.Outcome, r.Reason = RolledBack, reasonUnconfirmed }),
		"switch to /new: interrupted by a reboot":                                                            with(func(r *Run) { r.Rebooted = true }),
		"switch to /new: running, and rolls back in 5s unless it is confirmed":                               with(func(r *Run) { r.Alive, r.Armed, r.Remaining = true, time.Minute, 5*time.Second }),
		"switch to /new: failed: another switch is running on the node (exit 11): try again when it is done": with(func(r *Run) { r.Outcome, r.Reason = Failed, reasonLocked }),
		"switch to /new: rollback to /old failed: hung, and the rollback ended with 2":                       with(func(r *Run) { r.Outcome, r.Reason = RollbackFailed, "hung, and the rollback ended with 2" }),
	} {
		if got := r.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestCutOffAnswer(t *testing.T) {
	p := newNodeParser()
	p.handleLine("nixos=yes")
	if _, err := p.finishNode(); err == nil {
		t.Error("half an answer was taken for a whole one")
	}
}

// A node that answers late is given more time with each attempt, within the confirm time.
func TestAttemptLimit(t *testing.T) {
	for _, c := range []struct {
		confirm  time.Duration
		slowness int
		want     time.Duration
	}{
		{5 * time.Minute, 0, 10 * time.Second},
		{5 * time.Minute, 1, 20 * time.Second},
		{5 * time.Minute, 2, 40 * time.Second},
		{5 * time.Minute, 3, 75 * time.Second},
		{5 * time.Minute, 100, 75 * time.Second},
		{0, 100, 75 * time.Second},
		{time.Minute, 100, 15 * time.Second},
		{5 * time.Second, 100, 10 * time.Second},
	} {
		w := &watch{confirm: c.confirm, slowness: c.slowness}
		if got := w.attemptLimit(); got != c.want {
			t.Errorf("confirm %v, %d attempts: %v, want %v", c.confirm, c.slowness, got, c.want)
		}
	}
}
