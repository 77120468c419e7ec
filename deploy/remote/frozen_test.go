package remote_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/remote"
)

// dialFreezing connects to a server that freezes after limit bytes.
func dialFreezing(t *testing.T, limit int64, o remote.Options) (*remote.Conn, <-chan struct{}) {
	s := inProcess(t, want{hostKey: newKey(t), user: newKey(t), freezeAfter: limit})
	return dial(t, s.config(t), o), s.frozen
}

// Close ends pending reads and writes, although a write to the network blocks.
func TestCloseWhenFrozen(t *testing.T) {
	path := digest(t)
	conn, frozen := dialFreezing(t, 1<<20, remote.Options{})
	var ended []chan error
	var channels []net.Conn
	for range 4 { // more data than the buffers of the network contain
		through, err := conn.Dial(t.Context(), "unix", path)
		if err != nil {
			t.Fatal(err)
		}
		channels = append(channels, through)
	}
	for _, through := range channels {
		for _, operation := range []func() error{
			func() error { _, err := through.Write(make([]byte, 16<<20)); return err },
			func() error { _, err := through.Read(make([]byte, 1)); return err },
		} {
			result := make(chan error, 1)
			ended = append(ended, result)
			go func() { result <- operation() }()
		}
	}
	<-frozen
	time.Sleep(time.Second) // until all buffers are full
	begin := time.Now()
	for _, through := range channels {
		through.Close()
	}
	for i, result := range ended {
		select {
		case err := <-result:
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("%d: %v", i, err)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("operation %d does not end", i)
		}
	}
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("Close took %v", took)
	}
}

// A cancelled command ends, although a write to the network blocks.
func TestCancelWhenFrozen(t *testing.T) {
	conn, frozen := dialFreezing(t, 1<<20, remote.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 4)
	for range 4 { // more data than the buffers of the network contain
		go func() {
			ended <- conn.Run(ctx, remote.Cmd{Argv: []string{"sh", "-c", "cat >/dev/null"}, Stdin: bytes.NewReader(make([]byte, 16<<20))})
		}()
	}
	<-frozen
	time.Sleep(time.Second) // until all buffers are full
	cancel()
	limit := time.After(5 * time.Second)
	for range 4 {
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		case <-limit:
			t.Fatal("the command does not end")
		}
	}
}
