package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/nixbench/nixbench/deploy/failure"
)

// Dial connects from the node to an address, or to a socket on the node if network is unix. The node resolves the host name in an
// address. Close ends pending writes at once and pending reads within a second, even if the network drops all packets. The connection
// supports no deadlines, and has a CloseWrite method.
//
// sshd gives the same answer if it forbids forwarding, if there is no such socket, and if nothing listens on it.
func (c *Conn) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.cfg.ConnectTimeout, longTimeout))
	defer cancel()
	conn, err := await(ctx, c, func() (net.Conn, error) { return c.transport.Dial(network, address) })
	switch {
	case err == nil:
		return newChannel(conn), nil
	case c.Err() != nil:
		return nil, c.Err()
	}
	return nil, failure.On(c.cfg.Node, fmt.Errorf("connect to %s: %w", address, err))
}

// DialCommand starts a command on the node, and returns a connection to its stdin and stdout.
// If the command fails, reads and writes return the error of the command. Close closes the command's stdin, and ends the command if it
// has not ended after closeGrace.
func (c *Conn) DialCommand(ctx context.Context, cmd Cmd) *PipeConn {
	ctx, cancel := context.WithCancel(ctx)
	stdin, in := io.Pipe()
	out, stdout := io.Pipe()
	cmd.Stdin, cmd.Stdout = stdin, stdout
	go func() {
		defer cancel()
		err := c.Run(ctx, cmd)
		stdin.CloseWithError(err)  // first, so that a write after the error of a read fails too
		stdout.CloseWithError(err) // io.EOF if err is nil
	}()
	return &PipeConn{out, in, func() error {
		time.AfterFunc(closeGrace, cancel)
		return errors.Join(in.Close(), out.Close())
	}}
}

// Forward accepts connections on a local listener. For each, it calls dial, and copies data between the two connections. It closes the
// listener and all connections when the SSH connection ends, or when the caller calls stop.
func (c *Conn) Forward(listener net.Listener, dial func(context.Context) (net.Conn, error)) (stop func()) {
	ctx, cancel := context.WithCancel(c.ctx)
	context.AfterFunc(ctx, func() { listener.Close() })
	var work sync.WaitGroup
	work.Go(func() {
		for local, err := listener.Accept(); err == nil; local, err = listener.Accept() {
			work.Go(func() { serveConn(ctx, local, dial) })
		}
	})
	return func() {
		cancel()
		work.Wait()
	}
}

// serveConn copies data between a local connection and the one that dial returns, until both directions have ended. The end of one
// direction does not end the other one: the Nix daemon still answers after its client has finished sending.
func serveConn(ctx context.Context, local net.Conn, dial func(context.Context) (net.Conn, error)) {
	defer local.Close()
	defer context.AfterFunc(ctx, func() { local.Close() })()
	far, err := dial(ctx)
	if err != nil {
		return
	}
	defer far.Close()
	defer context.AfterFunc(ctx, func() { far.Close() })()
	var work sync.WaitGroup
	one := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
			half.CloseWrite()
			return
		}
		// An error in one direction ends both directions.
		to.Close()
		from.Close()
	}
	work.Go(func() { one(local, far) })
	work.Go(func() { one(far, local) })
	work.Wait()
}

// closeGrace is the maximum time that a pending read of a channel takes after Close was called.
const closeGrace = time.Second

// newChannel returns a connection that wraps conn, a connection over the SSH connection to a socket or an address that the node can
// reach. Pending writes fail at once after Close. Pending reads return the data that the server still sends before it confirms the
// end, and fail after closeGrace. An error of a write is returned by the next Write.
//
// The operations of an ssh.Channel, even Close, wait for the server or for a blocked write to the network. If the network drops all
// packets, these operations end only when the SSH connection ends. Therefore goroutines copy the data between pipes and conn.
func newChannel(conn net.Conn) *PipeConn {
	in, received := io.Pipe()
	sent, out := io.Pipe()
	closed := make(chan struct{})
	go func() {
		_, err := io.Copy(received, conn)
		received.CloseWithError(err) // io.EOF if err is nil
	}()
	go func() {
		_, readErr, writeErr := growingCopy(conn, sent, hugeBuffer)
		err := cmp.Or(writeErr, readErr)
		if err == nil { // CloseWrite was called
			err = conn.(interface{ CloseWrite() error }).CloseWrite()
		}
		sent.CloseWithError(err)
		<-closed
		conn.Close()
	}()
	return &PipeConn{in, out, sync.OnceValue(func() error {
		close(closed)
		sent.CloseWithError(net.ErrClosed)
		time.AfterFunc(closeGrace, func() {
			received.CloseWithError(net.ErrClosed)
			conn.Close() // also if a write waits for a program that reads nothing
		})
		return nil
	})}
}

// PipeConn is a connection that consists of two pipes. It has neither deadlines nor addresses.
type PipeConn struct {
	in    *io.PipeReader // the received data
	out   *io.PipeWriter // the data to send
	close func() error
}

func (c *PipeConn) Read(p []byte) (int, error)  { return c.in.Read(p) }
func (c *PipeConn) Write(p []byte) (int, error) { return c.out.Write(p) }

// CloseWrite tells the other side that no data follows.
func (c *PipeConn) CloseWrite() error                { return c.out.Close() }
func (c *PipeConn) Close() error                     { return c.close() }
func (c *PipeConn) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (c *PipeConn) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (c *PipeConn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

// The address has the form of a TCP address, because the library that reads known_hosts parses it.
func (c *PipeConn) LocalAddr() net.Addr  { return &net.TCPAddr{} }
func (c *PipeConn) RemoteAddr() net.Addr { return &net.TCPAddr{} }
