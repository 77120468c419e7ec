package remote_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
)

// silentAddress returns the port of a listener that accepts connections and sends nothing.
func silentAddress(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

// messages collects the messages of a host.
type messages struct {
	mu   sync.Mutex
	list []event.Event
}

func (m *messages) sink(e event.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.Kind == event.Message {
		m.list = append(m.list, e)
	}
}

// The first host that accepts a login is used, and again for every later connection, although the hosts before
// it then accept logins too.
func TestHostsInOrder(t *testing.T) {
	first, second := kind(inProcess).start(t, want{}), kind(inProcess).start(t, want{})
	first.stop()
	silent := first.config(t)
	silent.Port = silentAddress(t)
	silent.ConnectTimeout = 300 * time.Millisecond
	other := second.config(t)
	other.HostKeys = first.config(t).HostKeys // another machine answers
	cfg := first.config(t)
	cfg.Fallbacks = []sshconfig.Config{silent, other, second.config(t)}
	var got messages
	var dialed []string // one dial at a time
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialed = append(dialed, addr)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	host := remote.NewHost(cfg, remote.Options{Send: got.sink, DialContext: dial})
	defer host.Close()
	conn, err := host.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if host.Config().Port != second.port || host.Handshakes() != 1 {
		t.Errorf("port %d, want %d; %d logins", host.Config().Port, second.port, host.Handshakes())
	}
	if len(got.list) != 1 || got.list[0].Level != "warning" { // because of the host key
		t.Fatalf("messages: %+v", got.list)
	}
	for _, part := range []string{fmt.Sprintf("node-1: uses 127.0.0.1:%d, because ", second.port),
		fmt.Sprintf("cannot reach 127.0.0.1:%d: ", first.port), "connection refused", fmt.Sprintf("cannot reach 127.0.0.1:%d: ", silent.Port), "no SSH login within 300ms", "CHANGED"} {
		if !strings.Contains(got.list[0].Text, part) {
			t.Errorf("the message has no %q: %s", part, got.list[0].Text)
		}
	}
	first.restart()
	conn.Close()
	dialed = nil
	for _, connect := range []func(context.Context) (*remote.Conn, error){host.Conn, host.Fresh, host.WaitReachable} {
		if _, err := connect(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	want := fmt.Sprintf("127.0.0.1:%d", second.port)
	if !slices.Equal(dialed, []string{want, want}) || host.Config().Port != second.port || len(got.list) != 1 {
		t.Errorf("dialed %q, want only %s; port %d; messages %+v", dialed, want, host.Config().Port, got.list)
	}
}

// The error names every host that was tried, and why it was not used.
func TestNoHostAcceptsLogin(t *testing.T) {
	s := kind(inProcess).start(t, want{})
	refused, silent, stranger := s.config(t), s.config(t), s.config(t)
	refused.Port = reservePort(t)
	silent.Port, silent.ConnectTimeout = silentAddress(t), 200*time.Millisecond
	stranger.HostKeys = nil // no known_hosts file has the key
	refused.Fallbacks = []sshconfig.Config{silent, stranger}
	host := remote.NewHost(refused, remote.Options{})
	defer host.Close()
	begin := time.Now()
	_, err := host.Conn(t.Context())
	var all *remote.AllHostsError
	if !errors.As(err, &all) || len(all.Errs) != 3 || failure.KindOf(err) != failure.Unreachable {
		t.Fatalf("error %v", err)
	}
	want := fmt.Sprintf("node-1: none of its hosts accepts a login: cannot reach 127.0.0.1:%d: ", refused.Port)
	if text := err.Error(); !strings.HasPrefix(text, want) || strings.Count(text, "node-1: ") != 1 ||
		!strings.Contains(text, fmt.Sprintf("; cannot reach 127.0.0.1:%d: it accepts connections, but", silent.Port)) ||
		!strings.Contains(text, fmt.Sprintf("; the host key of 127.0.0.1:%d is not known", s.port)) {
		t.Errorf("error %s", text)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if _, err := host.Fresh(t.Context()); !errors.As(err, &all) {
		t.Errorf("Fresh: %v", err)
	}
}

// Only a node at whose hosts nothing answers has a reason for it. TryConn finds this out soon.
func TestSilentReason(t *testing.T) {
	s := kind(inProcess).start(t, want{})
	refused := func() sshconfig.Config { cfg := s.config(t); cfg.Port = reservePort(t); return cfg }
	through := func(command string) sshconfig.Config {
		cfg := s.config(t)
		cfg.ProxyCommand = `sh -c "` + command + `"`
		return cfg
	}
	unknown, mute, slow, several, other := s.config(t), s.config(t), s.config(t), refused(), refused()
	unknown.HostKeys = nil // no known_hosts file has the key
	mute.Port, mute.ConnectTimeout = silentAddress(t), 100*time.Millisecond
	slow.ConnectTimeout, slow.ProxyCommand = 100*time.Millisecond, "sleep 10"
	stranger := s.config(t)
	stranger.IdentityFiles = []string{newKey(t).file}
	several.Fallbacks, other.Fallbacks = []sshconfig.Config{refused()}, []sshconfig.Config{unknown}
	dialError := func(err error) remote.Options {
		return remote.Options{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
		}}
	}
	for name, test := range map[string]struct {
		cfg  sshconfig.Config
		opts remote.Options
		want string
	}{
		"an answer":               {s.config(t), remote.Options{}, ""},
		"refused":                 {refused(), remote.Options{}, "connection refused"},
		"no route":                {s.config(t), dialError(os.NewSyscallError("connect", syscall.EHOSTUNREACH)), "no route to host"},
		"no name":                 {s.config(t), dialError(&net.DNSError{Err: "no such host", Name: "laptop", Server: "127.0.0.1:53", IsNotFound: true}), "no such host"},
		"no answer of the DNS":    {s.config(t), dialError(&net.DNSError{Err: "read udp 127.0.0.1:9->127.0.0.1:53: i/o timeout", Name: "laptop", IsTimeout: true}), ""},
		"no socket":               {s.config(t), dialError(os.NewSyscallError("socket", syscall.EMFILE)), ""},
		"a firewall here":         {s.config(t), dialError(os.NewSyscallError("connect", syscall.EPERM)), ""},
		"no answer":               {slow, remote.Options{}, "no answer within 100ms"},
		"no SSH":                  {mute, remote.Options{}, ""},
		"an unknown key":          {unknown, remote.Options{}, ""},
		"a refused login":         {stranger, remote.Options{}, ""},
		"several hosts":           {several, remote.Options{}, "connection refused"},
		"another host answers":    {other, remote.Options{}, ""},
		"no route of a jump host": {through("echo 'channel 0: open failed: connect failed: No route to host' >&2; exit 255"), remote.Options{}, "no route to host"},
		"no name at a jump host":  {through("echo 'channel 0: open failed: connect failed: Name or service not known' >&2; exit 255"), remote.Options{}, "name or service not known"},
		"refused by a jump host":  {through("echo 'me@jump: Permission denied (publickey).' >&2; exit 255"), remote.Options{}, ""},
		"a key of the jump host":  {through("echo 'Host key verification failed.' >&2; exit 255"), remote.Options{}, ""},
		"a proxy that is missing": {through("nosuch-proxy"), remote.Options{}, ""},
	} {
		host := remote.NewHost(test.cfg, test.opts)
		_, err := host.TryConn(t.Context())
		if got := remote.SilentReason(err); got != test.want {
			t.Errorf("%s: %q, want %q; error %v", name, got, test.want, err)
		}
		host.Close()
	}

	cfg := s.config(t)
	synctest.Test(t, func(t *testing.T) {
		host := remote.NewHost(cfg, remote.Options{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		defer host.Close()
		if _, err := host.TryConn(t.Context()); remote.SilentReason(err) != "no answer within 5s" {
			t.Error(err)
		}
	})

	// Through a proxy, the limit is that of other commands, because it covers the login at the jump host.
	ctx, cancel := context.WithCancel(t.Context())
	var limit time.Duration
	host := remote.NewHost(through("sleep 60"), remote.Options{Send: func(e event.Event) {
		limit = max(limit, e.Until.Sub(e.Since))
		cancel()
	}})
	defer host.Close()
	if _, err := host.TryConn(ctx); limit < 14*time.Second {
		t.Errorf("limit %v, error %v", limit, err)
	}
}

// A cancelled run does not try the other hosts.
func TestHostsCancelled(t *testing.T) {
	s := kind(inProcess).start(t, want{})
	silent := s.config(t)
	silent.Port = silentAddress(t)
	silent.Fallbacks = []sshconfig.Config{s.config(t)}
	host := remote.NewHost(silent, remote.Options{})
	defer host.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("stop")
	time.AfterFunc(100*time.Millisecond, func() { cancel(why) })
	begin := time.Now()
	if _, err := host.Conn(ctx); !errors.Is(err, why) || time.Since(begin) > 3*time.Second || host.Handshakes() != 0 {
		t.Errorf("error %v after %v, %d logins", err, time.Since(begin), host.Handshakes())
	}
}

// If the machine of a node does not run, a login ends early with what the hypervisor reports.
func TestMachineDown(t *testing.T) {
	s := kind(inProcess).start(t, want{})
	silent := s.config(t)
	silent.Port = silentAddress(t)
	silent.ConnectTimeout = time.Minute
	down := func(context.Context, string) string { return "off (libvirt: shut off)" }
	host := remote.NewHost(silent, remote.Options{Down: down})
	defer host.Close()
	for range 2 {
		begin := time.Now()
		_, err := host.Fresh(t.Context())
		if text := fmt.Sprintf("node-1: cannot reach 127.0.0.1:%d: its machine is off (libvirt: shut off)", silent.Port); err == nil || err.Error() != text || time.Since(begin) > 8*time.Second {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
		if reason := remote.Reason(err); reason != "its machine is off (libvirt: shut off)" {
			t.Errorf("reason %q", reason)
		}
		if !strings.HasPrefix(failure.Hint(err), "nixbench start --on node-1") {
			t.Errorf("hint %q", failure.Hint(err))
		}
	}
	// So does an open connection, over which nothing arrives.
	frozen, _ := dialFreezing(t, 50_000, remote.Options{Down: down})
	begin := time.Now()
	err := frozen.Run(t.Context(), remote.Cmd{Argv: []string{"cat"}, Stdin: strings.NewReader(strings.Repeat("x", 1_000_000))})
	var lost *remote.LostError
	if !errors.As(err, &lost) || !strings.Contains(err.Error(), "its machine is off (libvirt: shut off)") || time.Since(begin) > 10*time.Second {
		t.Errorf("after %s: %v", time.Since(begin), err)
	}

	slow := s.config(t)
	slowDial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		time.Sleep(2200 * time.Millisecond)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	other := remote.NewHost(slow, remote.Options{DialContext: slowDial, Down: func(context.Context, string) string { return "" }})
	defer other.Close()
	if _, err := other.Conn(t.Context()); err != nil {
		t.Errorf("a machine that runs: %v", err)
	}
}
