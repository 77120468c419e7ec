package remote

import (
	"errors"
	"net"
	"sync"
	"testing"
)

// stuckConn is a connection whose write is blocked until release is closed, and then reads its data.
type stuckConn struct {
	net.Conn
	began, release chan struct{}
	wrote          chan string
}

func (s *stuckConn) Read([]byte) (int, error) { <-s.release; return 0, net.ErrClosed }
func (s *stuckConn) Close() error             { return nil }
func (s *stuckConn) Write(p []byte) (int, error) {
	close(s.began)
	<-s.release
	s.wrote <- string(p)
	return len(p), nil
}

// Close ends a write that waits for the connection. A caller may change its data after a write, although the connection still reads
// data then.
func TestDataOfEndedWrite(t *testing.T) {
	s := &stuckConn{began: make(chan struct{}), release: make(chan struct{}), wrote: make(chan string, 1)}
	c := newChannel(s)
	data := []byte("data")
	if _, err := c.Write(data); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := c.Write(data)
		ended <- err
	}()
	<-s.began
	c.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("the write that Close has ended: %v", err)
	}
	copy(data, "else")
	if _, err := c.Write(data); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a write after Close: %v", err)
	}
	close(s.release)
	if got := <-s.wrote; got != "data" {
		t.Errorf("the connection was given %q", got)
	}
}

// fullConn is a connection whose other side reads nothing: a write is blocked until Close.
type fullConn struct {
	net.Conn
	began, closed chan struct{}
	close         func()
}

func (f *fullConn) Read([]byte) (int, error) { <-f.closed; return 0, net.ErrClosed }
func (f *fullConn) Close() error             { f.close(); return nil }
func (f *fullConn) Write([]byte) (int, error) {
	close(f.began)
	<-f.closed
	return 0, net.ErrClosed
}

// Close also closes a connection whose other side reads nothing. Otherwise a program on the node would run until the SSH connection
// ends.
func TestCloseDuringWrite(t *testing.T) {
	f := &fullConn{began: make(chan struct{}), closed: make(chan struct{})}
	f.close = sync.OnceFunc(func() { close(f.closed) })
	c := newChannel(f)
	if _, err := c.Write([]byte("data")); err != nil {
		t.Fatal(err)
	}
	<-f.began
	c.Close()
	<-f.closed
}
