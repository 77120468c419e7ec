package closure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
	"github.com/nixbench/nixbench/deploy/remote/sshtest"
	"github.com/nixbench/nixbench/nixeval"
	"github.com/nixbench/nixbench/nixeval/daemon"
	"github.com/nixbench/nixbench/nixeval/daemon/daemontest"
)

// TestMain lets the test's program stand in for netcat: see connectInLab.
func TestMain(m *testing.M) {
	if addr := os.Getenv("NIXBENCH_TEST_NETCAT"); addr != "" {
		os.Exit(netcat(addr))
	}
	os.Exit(m.Run())
}

// netcat ends after $NIXBENCH_TEST_CUT bytes, if that is set.
func netcat(addr string) int {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() {
		if cut, err := strconv.ParseInt(os.Getenv("NIXBENCH_TEST_CUT"), 10, 64); err == nil {
			io.CopyN(conn, os.Stdin, cut)
			os.Exit(1)
		}
		io.Copy(conn, os.Stdin)
		conn.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(os.Stdout, conn)
	return 0
}

// startServer starts an SSH server and returns a host that logs in to it.
func startServer(t testing.TB, opts sshtest.Options) (*sshtest.Server, *remote.Host) {
	t.Helper()
	s, err := sshtest.Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, sshtest.GeneratePrivateKey(), 0o600); err != nil {
		t.Fatal(err)
	}
	h := remote.NewHost(hostConfig(s, s.Port(), key), remote.Options{})
	t.Cleanup(func() { h.Close() })
	return s, h
}

func hostConfig(s *sshtest.Server, port int, key string) sshconfig.Config {
	return sshconfig.Config{
		Node: "web-1", Alias: "web-1", HostName: "127.0.0.1", Port: port, User: "root", Network: "tcp",
		IdentityFiles: []string{key}, IdentitiesOnly: true, HostKeys: []ssh.PublicKey{s.Key()},
	}
}

// fakes is a node and a local Nix without files: what is valid is a list.
type fakes struct {
	t       testing.TB
	closure []string                                           // of everything, the last one is the system
	copy    func(ctx context.Context, c nixeval.Command) error // nil: all of closure arrives
	query   func(c nixeval.Command) error                      // called before the closure is read, unless nil
	remote  func(e *sshtest.Exec) (status int, known bool)     // other commands on the node
	dir     string
	there   daemontest.Store // of the node

	mu    sync.Mutex
	argvs []string // what was run here
}

func newFakes(t testing.TB, n int) *fakes {
	f := &fakes{t: t, dir: shortDir(t)}
	for i := range n {
		f.closure = append(f.closure, fmt.Sprintf("/nix/store/%032d-path", i))
	}
	return f
}

// shortDir is like t.TempDir, for sockets.
func shortDir(t testing.TB) string {
	dir, err := os.MkdirTemp("", "nbc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (f *fakes) system() []string { return f.closure[len(f.closure)-1:] }

// node starts a node, and a copier that copies to it.
func (f *fakes) node(opts sshtest.Options) (*sshtest.Server, *remote.Host, *Copier, *events) {
	opts.Handler = f.exec
	s, h := startServer(f.t, opts)
	socket := filepath.Join(f.dir, "daemon")
	if l, err := net.Listen("unix", socket); err == nil { // the second node shares the daemon
		f.t.Cleanup(func() { l.Close() })
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				go f.there.Serve(c)
			}
		}()
	}
	seen := &events{}
	return s, h, &Copier{Run: f.run, Start: f.start, Send: seen.add, Dir: shortDir(f.t), socket: at(socket)}, seen
}

func (f *fakes) exec(_ context.Context, e *sshtest.Exec) int {
	if slices.Equal(e.Argv, []string{"nix-daemon", "--stdio"}) {
		f.there.ServeStdio(e.Stdin, e.Stdout)
		return 0
	}
	if f.remote != nil {
		if status, known := f.remote(e); known {
			return status
		}
	}
	f.t.Errorf("no test expected %q on the node", e.Argv)
	return 1
}

// start stands in for the local nix-daemon. Each path has 1000 bytes and refers to the path before it.
func (f *fakes) start(_ context.Context, c nixeval.Command) (io.ReadWriteCloser, error) {
	f.mu.Lock()
	f.argvs = append(f.argvs, strings.Join(c.Argv, " "))
	f.mu.Unlock()
	if f.query != nil {
		if err := f.query(c); err != nil {
			return nil, err
		}
	}
	store := &daemontest.Store{}
	for i, p := range f.closure {
		store.Infos = append(store.Infos, daemon.PathInfo{Path: p, NarSize: 1000, References: f.closure[max(0, i-1) : i+1]})
	}
	here, there := net.Pipe()
	go store.Serve(there)
	return here, nil
}

func (f *fakes) run(ctx context.Context, c nixeval.Command) ([]byte, error) {
	line := strings.Join(c.Argv, " ")
	f.mu.Lock()
	f.argvs = append(f.argvs, line)
	f.mu.Unlock()
	switch {
	case strings.Contains(line, "nix copy "):
		if f.copy != nil {
			return nil, f.copy(ctx, c)
		}
		f.arrive(c, f.closure...)
		return nil, nil
	}
	f.t.Errorf("no test expected %q here", c.Argv)
	return nil, errors.New("unexpected")
}

// arrive makes paths valid on the node, and logs it as Nix does.
func (f *fakes) arrive(c nixeval.Command, paths ...string) {
	for i, p := range paths {
		if f.there.SetValid(p) {
			c.Stderr(fmt.Sprintf(`@nix {"action":"start","id":%d,"type":100,"fields":[%q,"local","there"]}`, i, p))
			c.Stderr(fmt.Sprintf(`@nix {"action":"result","id":%d,"type":105,"fields":[500,1000,0,0]}`, i))
			c.Stderr(fmt.Sprintf(`@nix {"action":"stop","id":%d}`, i))
		}
	}
}

// ran counts the local commands that begin like this.
func (f *fakes) ran(prefix string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.argvs {
		if strings.HasPrefix(a, prefix) {
			n++
		}
	}
	return n
}

// fails is how Nix fails with a message.
func fails(c nixeval.Command, msg string) error {
	c.Stderr(fmt.Sprintf(`@nix {"action":"msg","level":0,"msg":"error: %s","raw_msg":%q}`, msg, msg))
	return &exec.ExitError{ProcessState: exitOne()}
}

var exitOne = sync.OnceValue(func() *os.ProcessState {
	cmd := exec.Command("false")
	cmd.Run()
	return cmd.ProcessState
})

type events struct {
	mu  sync.Mutex
	all []event.Event
}

func (e *events) add(ev event.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, ev)
}

func (e *events) of(kind event.Kind) (out []event.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.all {
		if ev.Kind == kind {
			out = append(out, ev)
		}
	}
	return out
}

// nothingLeft checks that a copier's folder is empty.
func nothingLeft(t testing.TB, dir string) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Second)
	for {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%s has %v left, %v", dir, entries, err)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
