package closure

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/remote/sshtest"
	"github.com/nixbench/nixbench/nixeval"
	"github.com/nixbench/nixbench/nixeval/daemon/daemontest"
)

// A cancelled copy returns soon, although the network forwards nothing any more.
func TestCancelWhenFrozen(t *testing.T) {
	for name, test := range map[string]struct {
		limit  int64 // bytes that the server reads, unless 0
		atDial int   // the connection to the node's daemon that freezes the server
		atRead bool  // the server freezes when the local store is read
	}{
		"handshake": {atDial: 1},
		"query":     {atRead: true},
		"copy":      {limit: 3 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			local := newLocalStore(t, 6, 8<<20)
			s, h := startServer(t, sshtest.Options{FreezeAfter: test.limit})
			socket := serveDaemon(t, func(n int) {
				if n == test.atDial {
					s.Freeze()
				}
			})
			c, _ := local.copier()
			c.socket = at(socket)
			c.Start = func(ctx context.Context, cmd nixeval.Command) (io.ReadWriteCloser, error) {
				if test.atRead {
					s.Freeze()
				}
				return local.start(ctx, cmd)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			ended := make(chan error, 1)
			go func() {
				_, err := c.Copy(ctx, "web-1", h, local.system()[0], "")
				ended <- err
			}()
			select {
			case <-s.Frozen():
			case err := <-ended:
				t.Fatalf("ended before the network froze: %v", err)
			case <-time.After(20 * time.Second):
				t.Fatal("the network does not freeze")
			}
			time.Sleep(time.Second) // until all buffers are full
			cancel(errTest)
			begin := time.Now()
			select {
			case err := <-ended:
				t.Logf("ended after %v: %v", time.Since(begin).Round(time.Millisecond), err)
				if !errors.Is(err, errTest) {
					t.Errorf("%v", err)
				}
			case <-time.After(5 * time.Second):
				t.Error("the copy does not end")
			}
			s.Close()
			h.Close()
			checkNoGoroutines(t)
		})
	}
}

// serveDaemon starts a node's daemon, which calls dialed with the number of each connection.
func serveDaemon(t *testing.T, dialed func(n int)) (socket string) {
	socket = filepath.Join(shortDir(t), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	store := &daemontest.Store{}
	go func() {
		for n := 1; ; n++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			dialed(n)
			go store.Serve(conn)
		}
	}()
	return socket
}

// checkNoGoroutines waits until no goroutine executes code of this package or of package remote, except tests.
func checkNoGoroutines(t *testing.T) {
	t.Helper()
	var left []string
	for range 100 {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		left = nil
		for stack := range strings.SplitSeq(string(stacks), "\n\n") {
			isOurs := strings.Contains(stack, "deploy/remote.") || strings.Contains(stack, "deploy/closure.(*")
			if isOurs && !strings.Contains(stack, "deploy/closure.checkNoGoroutines") {
				left = append(left, stack)
			}
		}
		if len(left) == 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("%d goroutines are left:\n%s", len(left), strings.Join(left, "\n\n"))
}
