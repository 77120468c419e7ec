package remote_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
)

// lively notices a dead server soon: after the interval times three.
func lively(cfg sshconfig.Config, interval time.Duration) sshconfig.Config {
	cfg.KeepAliveInterval, cfg.KeepAliveMax = interval, 3
	return cfg
}

// runQuietly runs a command that prints nothing for longer than the limit of lively, so that only the
// answers to keepalives keep its connection open. On a busy machine, a server may not answer within a
// short limit; then a longer limit is tried.
func runQuietly(t *testing.T, s *server) *remote.Conn {
	t.Helper()
	for interval := 200 * time.Millisecond; ; interval *= 3 {
		conn := dial(t, lively(s.config(t), interval), remote.Options{})
		seconds := fmt.Sprint((interval * 15 / 2).Seconds())
		err := conn.Run(t.Context(), remote.Cmd{Argv: []string{"sleep", seconds}})
		if err == nil {
			return conn
		}
		if interval > time.Second {
			t.Fatal(err)
		}
		t.Log(err)
	}
}

func testFrozen(t *testing.T, k kind) {
	s := k.start(t, want{})
	conn := runQuietly(t, s)
	result := make(chan error, 1)
	go func() { result <- conn.Run(t.Context(), remote.Cmd{Argv: []string{"sleep", "60"}}) }()
	time.Sleep(200 * time.Millisecond)
	s.freeze()
	defer s.thaw()
	begin := time.Now()
	queued := conn.Run(t.Context(), remote.Cmd{Argv: []string{"true"}})
	for name, err := range map[string]error{"running": <-result, "new": queued, "conn": conn.Err()} {
		var lost *remote.LostError
		if !errors.As(err, &lost) || !strings.Contains(err.Error(), "keepalives") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if took := time.Since(begin); took > 20*time.Second { // a machine under load needs longer than the limit; TCP, minutes
		t.Errorf("it took %v", took)
	}
	select {
	case <-conn.Context().Done():
	default:
		t.Error("not done")
	}
}

func testFrozenAtLogin(t *testing.T, k kind) {
	// A listener that accepts and then says nothing stands for any server.
	s := k.start(t, want{})
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	cfg := s.config(t)
	cfg.Port = silent.Addr().(*net.TCPAddr).Port
	begin := time.Now()
	cfg.ConnectTimeout = 300 * time.Millisecond
	err = try(t, cfg, remote.Options{})
	var unreachable *remote.UnreachableError
	if !errors.As(err, &unreachable) || time.Since(begin) > 3*time.Second {
		t.Errorf("after %v: %v", time.Since(begin), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := remote.Dial(ctx, cfg, remote.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	cfg.HostName = "no-such-host.invalid"
	cfg.ConnectTimeout = time.Second
	if err := try(t, cfg, remote.Options{}); !errors.As(err, &unreachable) {
		t.Errorf("no address: %v", err)
	}
}

func testDropped(t *testing.T, k kind) {
	s := k.start(t, want{})
	conn := s.dial(t)
	time.AfterFunc(200*time.Millisecond, s.drop)
	err := conn.Run(t.Context(), remote.Cmd{Argv: []string{"sleep", "2"}})
	var lost *remote.LostError
	if !errors.As(err, &lost) {
		t.Errorf("error %v", err)
	}
	conn.Close()
	if !errors.As(conn.Err(), &lost) {
		t.Errorf("Close hides the reason: %v", conn.Err())
	}
	closed := s.dial(t)
	closed.Close()
	if err := closed.Run(t.Context(), remote.Cmd{Argv: []string{"true"}}); !errors.Is(err, remote.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func testRestart(t *testing.T, k kind) {
	s := k.start(t, want{})
	waits := make(chan event.Event, 100)
	host := remote.NewHost(s.config(t), remote.Options{Send: func(e event.Event) { waits <- e }})
	defer host.Close()
	if err := host.Run(t.Context(), remote.Cmd{Argv: []string{"true"}}); err != nil {
		t.Fatal(err)
	}
	first, _ := host.Conn(t.Context())
	s.stop()
	<-first.Context().Done()
	var unreachable *remote.UnreachableError
	if _, err := host.Conn(t.Context()); !errors.As(err, &unreachable) || !strings.Contains(err.Error(), "no SSH server listens") {
		t.Errorf("while it is down: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), event.Grace+500*time.Millisecond)
	defer cancel()
	if _, err := host.WaitReachable(ctx); !errors.As(err, &unreachable) {
		t.Errorf("waiting in vain: %v", err)
	}
	if e := <-waits; !strings.HasPrefix(e.Text, "connect: connection refused; waits for an SSH login at 127.0.0.1:") || e.Until.IsZero() {
		t.Errorf("the wait is reported as %+v", e)
	}
	waited := make(chan error, 1)
	go func() {
		_, err := host.WaitReachable(t.Context())
		waited <- err
	}()
	time.Sleep(300 * time.Millisecond)
	s.restart()
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	if err := host.Run(t.Context(), remote.Cmd{Argv: []string{"true"}}); err != nil {
		t.Error(err)
	}
	if host.Handshakes() != 2 {
		t.Errorf("%d handshakes, want 2", host.Handshakes())
	}
}

func testFresh(t *testing.T, k kind) {
	host := remote.NewHost(k.start(t, want{}).config(t), remote.Options{})
	results := make(chan error)
	for range 20 {
		go func() { results <- host.Run(t.Context(), remote.Cmd{Argv: []string{"true"}}) }()
	}
	for range 20 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if host.Handshakes() != 1 {
		t.Errorf("%d handshakes for 20 commands, want 1", host.Handshakes())
	}
	shared, _ := host.Conn(t.Context())
	fresh, err := host.Fresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if fresh == shared || host.Handshakes() != 2 {
		t.Errorf("not a second connection: %d handshakes", host.Handshakes())
	}
	fresh.Close()
	if shared.Err() != nil {
		t.Error("closing the fresh connection closed the shared one")
	}
	fresh, _ = host.Fresh(t.Context())
	host.Close()
	if !errors.Is(fresh.Err(), remote.ErrClosed) || !errors.Is(shared.Err(), remote.ErrClosed) {
		t.Error("connections outlived their host")
	}
	if _, err := host.Conn(t.Context()); !errors.Is(err, remote.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func askThrough(t *testing.T, conn *remote.Conn) {
	t.Helper()
	through, err := conn.Dial(t.Context(), "unix", digest(t))
	if err != nil {
		t.Fatal(err)
	}
	askDigest(t, through, 100000)
}

func testProxyCommand(t *testing.T, k kind) {
	s := k.start(t, want{})
	cfg := s.config(t)
	cfg.ProxyCommand = fmt.Sprintf("env NIXBENCH_TEST_NETCAT=127.0.0.1:%d %s", s.port, os.Args[0])
	cfg.HostName = "only-the-proxy-knows"
	if err := try(t, cfg, remote.Options{}); err != nil {
		t.Error(err)
	}
	conn := dial(t, cfg, remote.Options{})
	askThrough(t, conn)
	cfg.ProxyCommand = "sh -c 'echo no route >&2; exit 1'"
	err := try(t, cfg, remote.Options{})
	var unreachable *remote.UnreachableError
	if !errors.As(err, &unreachable) || !strings.Contains(err.Error(), "no route") || strings.Count(err.Error(), "node-1: ") != 1 {
		t.Errorf("error %v", err)
	}
}

// netcat connects stdin and stdout with a TCP address.
func netcat(addr string) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go func() {
		io.Copy(conn, os.Stdin)
		conn.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(os.Stdout, conn)
}
