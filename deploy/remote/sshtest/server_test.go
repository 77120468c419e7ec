package sshtest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
	"github.com/nixbench/nixbench/deploy/remote/sshtest"
)

func start(t testing.TB, opts sshtest.Options) *sshtest.Server {
	t.Helper()
	s, err := sshtest.Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// identity writes a private key, one for the whole test.
func identity(t testing.TB) string {
	t.Helper()
	file := t.TempDir() + "/key"
	if err := os.WriteFile(file, sshtest.GeneratePrivateKey(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func config(s *sshtest.Server, node, user, identity string) sshconfig.Config {
	port := s.Port()
	cfg, err := sshconfig.Resolve(context.Background(), sshconfig.Target{
		Name: node, Host: "127.0.0.1", Port: &port, User: &user, IdentityFiles: []string{identity},
		HostKeys: []string{s.HostKey()}, Escalation: []string{"sudo", "-H", "--"},
	})
	if err != nil {
		panic(err)
	}
	return cfg
}

func TestHandler(t *testing.T) {
	s := start(t, sshtest.Options{Handler: func(ctx context.Context, e *sshtest.Exec) int {
		in, _ := io.ReadAll(e.Stdin)
		fmt.Fprintf(e.Stdout, "%s|%s|%s|%s", e.User, e.Argv, e.Escalation, in)
		fmt.Fprint(e.Stderr, "warning")
		return len(e.Argv)
	}})
	host := remote.NewHost(config(s, "n", "alice", identity(t)), remote.Options{})
	defer host.Close()
	conn, err := host.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out, err := conn.Output(t.Context(), remote.Cmd{Argv: []string{"a b", "$c"}, Stdin: strings.NewReader("in"), Sudo: true})
	var failed *remote.RunError
	if !errors.As(err, &failed) || failed.ExitStatus != 2 || failed.Stderr != "warning" {
		t.Errorf("error %v", err)
	}
	if string(out) != "alice|[a b $c]|[sudo -n -H --]|in" {
		t.Errorf("got %q", out)
	}
	if s.Handshakes() != 1 || s.Commands() != 1 {
		t.Errorf("%d handshakes, %d commands", s.Handshakes(), s.Commands())
	}
}

func TestFaults(t *testing.T) {
	key := identity(t)
	run := func(s *sshtest.Server) error {
		host := remote.NewHost(config(s, "n", "root", key), remote.Options{})
		defer host.Close()
		return host.Run(t.Context(), remote.Cmd{Argv: []string{"head", "-c", "1000000", "/dev/zero"}})
	}
	var lost *remote.LostError
	if err := run(start(t, sshtest.Options{DropAfter: 100000})); !errors.As(err, &lost) {
		t.Errorf("dropped: %v", err)
	}
}

// TestThousandNodes opens a connection to each of a thousand servers and runs
// a command on each, as a large apply would.
func TestThousandNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long; go test -short")
	}
	const nodes = 1000
	key := identity(t)
	answer := func(_ context.Context, e *sshtest.Exec) int {
		io.WriteString(e.Stdout, e.Argv[1])
		return 0
	}
	begin := time.Now()
	servers := make([]*sshtest.Server, nodes)
	for i := range servers {
		servers[i] = start(t, sshtest.Options{Handler: answer})
	}
	t.Logf("%d servers after %v, %d MB", nodes, time.Since(begin), megabytes())
	hosts := make([]*remote.Host, nodes)
	slots := make(chan struct{}, 50)
	var wg sync.WaitGroup
	for i, s := range servers {
		name := fmt.Sprintf("node-%d", i)
		cfg := config(s, name, "root", key)
		cfg.ConnectTimeout = time.Minute
		hosts[i] = remote.NewHost(cfg, remote.Options{})
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			conn, err := hosts[i].Conn(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			if out, err := conn.Output(t.Context(), remote.Cmd{Argv: []string{"echo", name}}); err != nil || string(out) != name {
				t.Errorf("%s: %q, %v", name, out, err)
			}
		})
	}
	wg.Wait()
	t.Logf("%d open connections after %v, %d MB for both sides, %d goroutines", nodes, time.Since(begin), megabytes(), runtime.NumGoroutine())
	for i, host := range hosts {
		if host.Handshakes() != 1 || servers[i].Handshakes() != 1 {
			t.Errorf("node-%d: %d and %d handshakes", i, host.Handshakes(), servers[i].Handshakes())
		}
		wg.Go(func() { host.Close() })
	}
	wg.Wait()
}

func megabytes() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return (m.HeapInuse + m.StackInuse) >> 20
}

// BenchmarkCommand is what one more command on an open connection costs.
func BenchmarkCommand(b *testing.B) {
	s := start(b, sshtest.Options{Handler: func(context.Context, *sshtest.Exec) int { return 0 }})
	host := remote.NewHost(config(s, "n", "root", identity(b)), remote.Options{})
	defer host.Close()
	for b.Loop() {
		if err := host.Run(b.Context(), remote.Cmd{Argv: []string{"true"}}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHandshake is what a connection costs.
func BenchmarkHandshake(b *testing.B) {
	s := start(b, sshtest.Options{})
	cfg := config(s, "n", "root", identity(b))
	for b.Loop() {
		conn, err := remote.Dial(b.Context(), cfg, remote.Options{})
		if err != nil {
			b.Fatal(err)
		}
		conn.Close()
	}
}

// BenchmarkForward is the speed of a forwarded socket.
func BenchmarkForward(b *testing.B) {
	dir := b.TempDir()
	sink, err := net.Listen("unix", dir+"/s")
	if err != nil {
		b.Fatal(err)
	}
	defer sink.Close()
	go func() {
		for {
			conn, err := sink.Accept()
			if err != nil {
				return
			}
			go io.Copy(io.Discard, conn)
		}
	}()
	s := start(b, sshtest.Options{})
	conn, err := remote.Dial(b.Context(), config(s, "n", "root", identity(b)), remote.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	to, err := conn.Dial(b.Context(), "unix", dir+"/s")
	if err != nil {
		b.Fatal(err)
	}
	block := make([]byte, 1<<20)
	b.SetBytes(int64(len(block)))
	for b.Loop() {
		if _, err := to.Write(block); err != nil {
			b.Fatal(err)
		}
	}
}
