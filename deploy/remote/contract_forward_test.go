package remote_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/remote"
)

// digest listens on a socket and answers everything that a client sends, once
// the client has finished sending, with its checksum: only a half-closed
// connection gets an answer.
func digest(t testing.TB) string {
	t.Helper()
	path := filepath.Join(shortDir(t), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				sum := sha256.New()
				if _, err := io.Copy(sum, conn); err == nil {
					conn.Write(sum.Sum(nil))
				}
			}()
		}
	}()
	return path
}

// shortDir is for sockets, whose names must be short.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "nb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func askDigest(t testing.TB, conn net.Conn, size int) {
	defer conn.Close()
	data := make([]byte, size)
	rand.NewChaCha8([32]byte{byte(size)}).Read(data)
	if _, err := conn.Write(data); err != nil {
		t.Error(err)
		return
	}
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Error(err)
	}
	got, err := io.ReadAll(conn)
	if want := sha256.Sum256(data); err != nil || !bytes.Equal(got, want[:]) {
		t.Errorf("%d bytes: got %x, %v", size, got, err)
	}
}

// forwardUnix forwards a local socket to a socket of the node.
func forwardUnix(t *testing.T, conn *remote.Conn, local, remotePath string) (stop func()) {
	t.Helper()
	listener, err := net.Listen("unix", local)
	if err != nil {
		t.Fatal(err)
	}
	return conn.Forward(listener, func(ctx context.Context) (net.Conn, error) { return conn.Dial(ctx, "unix", remotePath) })
}

func testForward(t *testing.T, k kind) {
	remotePath := digest(t)
	conn := k.start(t, want{}).dial(t)
	direct, err := conn.Dial(t.Context(), "unix", remotePath)
	if err != nil {
		t.Fatal(err)
	}
	askDigest(t, direct, 1<<20)

	local := filepath.Join(shortDir(t), "s")
	f := forwardUnix(t, conn, local, remotePath)
	through, err := net.Dial("unix", local)
	if err != nil {
		t.Fatal(err)
	}
	askDigest(t, through, 5<<20)

	idle, err := net.Dial("unix", local)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	f()
	idle.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := idle.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection outlived its forward: %v", err)
	}
	if _, err := os.Lstat(local); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	if err := conn.Run(t.Context(), remote.Cmd{Argv: []string{"true"}}); err != nil {
		t.Error(err)
	}

	// To an address as the node sees it, too.
	far, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	go func() {
		for c, err := far.Accept(); err == nil; c, err = far.Accept() {
			c.Write([]byte("hello from there"))
			c.Close()
		}
	}()
	near, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop := conn.Forward(near, func(ctx context.Context) (net.Conn, error) { return conn.Dial(ctx, "tcp", far.Addr().String()) })
	for range 2 {
		c, err := net.Dial("tcp", near.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(c); string(got) != "hello from there" || err != nil {
			t.Errorf("through TCP: %q, %v", got, err)
		}
		c.Close()
	}
	stop()
	// Another process may have the port by now.
	if c, err := net.Dial("tcp", near.Addr().String()); err == nil {
		c.SetReadDeadline(time.Now().Add(time.Second))
		if got, _ := io.ReadAll(c); string(got) == "hello from there" {
			t.Error("it still listens")
		}
		c.Close()
	}
}

func testForwardMany(t *testing.T, k kind) {
	conn := k.start(t, want{}).dial(t)
	local := filepath.Join(shortDir(t), "s")
	f := forwardUnix(t, conn, local, digest(t))
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			through, err := net.Dial("unix", local)
			if err != nil {
				t.Error(err)
				return
			}
			askDigest(t, through, 1000*i)
		})
	}
	wg.Wait()
	conn.Close()
	f()
	if _, err := os.Lstat(local); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

func testForwardForbidden(t *testing.T, k kind) {
	conn := k.start(t, want{forbidForwarding: true}).dial(t)
	if _, err := conn.Dial(t.Context(), "unix", digest(t)); err == nil {
		t.Error("the socket was reached")
	}
}

func testForwardMissing(t *testing.T, k kind) {
	conn := k.start(t, want{}).dial(t)
	if _, err := conn.Dial(t.Context(), "unix", "/no/such/socket"); err == nil || !strings.HasPrefix(err.Error(), "node-1: connect to /no/such/socket: ") {
		t.Errorf("error %v", err)
	}
}

// A command is a connection, too: it can be half-closed, its error is that of Read, and Close ends it.
func testDialCommand(t *testing.T, k kind) {
	conn := k.start(t, want{}).dial(t)
	through := conn.DialCommand(t.Context(), remote.Cmd{Argv: sh("cat; echo end")})
	data := strings.Repeat("x", 1<<20)
	go func() {
		io.WriteString(through, data)
		through.CloseWrite()
	}()
	if got, err := io.ReadAll(through); err != nil || string(got) != data+"end\n" {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	through.Close()

	failing := conn.DialCommand(t.Context(), remote.Cmd{Argv: sh("echo reason >&2; exit 3")})
	var failed *remote.RunError
	if _, err := failing.Read(make([]byte, 1)); !errors.As(err, &failed) || failed.ExitStatus != 3 || failed.Stderr != "reason\n" {
		t.Errorf("Read: %v", err)
	}
	if _, err := failing.Write([]byte("x")); err == nil {
		t.Error("the command has ended, and takes input")
	}
	failing.Close()

	file := filepath.Join(t.TempDir(), "pid")
	hung := conn.DialCommand(t.Context(), remote.Cmd{Argv: sh("echo $$ >$1; sleep 60; :", file)})
	pid := readPid(t, file)
	hung.Close()
	gone(t, pid, 5*time.Second)
}
