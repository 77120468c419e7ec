package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/nixbench/nixbench/deploy/failure"
)

// Dial connects from the node to an address, or to a socket on the node if network is unix. The node resolves the host name in an
// address. The returned connection supports no deadlines. Close ends pending writes at once and pending reads within a second, even
// if the network drops all packets. The connection has a CloseWrite method.
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

// DialCommand starts a command on the node, and returns a connection to its stdin and stdout, with a CloseWrite method.
// If the command fails, reads and writes return the error of the command. Close ends the command.
func (c *Conn) DialCommand(cmd Cmd) io.ReadWriteCloser {
	ctx, cancel := context.WithCancel(context.Background())
	stdin, in := io.Pipe()
	out, stdout := io.Pipe()
	cmd.Stdin, cmd.Stdout, cmd.Unlimited = stdin, stdout, true
	go func() {
		defer cancel()
		err := c.Run(ctx, cmd)
		stdin.CloseWithError(err)  // first, so that a write after the error of a read fails too
		stdout.CloseWithError(err) // io.EOF if err is nil
	}()
	return &commandConn{out, in, cancel}
}

type commandConn struct {
	*io.PipeReader
	in     *io.PipeWriter
	cancel context.CancelFunc
}

func (c *commandConn) Write(p []byte) (int, error) { return c.in.Write(p) }
func (c *commandConn) CloseWrite() error           { return c.in.Close() }

// Close closes the command's stdin. Most commands then end. If the command has not ended after closeGrace, Close ends it.
func (c *commandConn) Close() error {
	time.AfterFunc(closeGrace, c.cancel)
	return errors.Join(c.in.Close(), c.PipeReader.Close())
}

// ForwardTCP forwards each connection to a local listener to an address that the node connects to. The node resolves
// the host name in the address.
func (c *Conn) ForwardTCP(listener net.Listener, address string) io.Closer {
	return c.Forward(listener, func(ctx context.Context) (io.ReadWriteCloser, error) { return c.Dial(ctx, "tcp", address) })
}

// Forward accepts connections on a local listener. For each, it calls dial, and copies data between the two connections. It closes the
// listener and all connections when the SSH connection ends, or when the caller closes the returned Closer.
func (c *Conn) Forward(listener net.Listener, dial func(context.Context) (io.ReadWriteCloser, error)) io.Closer {
	ctx, cancel := context.WithCancel(c.ctx)
	context.AfterFunc(ctx, func() { listener.Close() })
	f := &forward{cancel: cancel}
	f.work.Go(func() {
		for local, err := listener.Accept(); err == nil; local, err = listener.Accept() {
			f.work.Go(func() { serveConn(ctx, local, dial) })
		}
	})
	return f
}

type forward struct {
	cancel context.CancelFunc
	work   sync.WaitGroup
}

func (f *forward) Close() error {
	f.cancel()
	f.work.Wait()
	return nil
}

func serveConn(ctx context.Context, local net.Conn, dial func(context.Context) (io.ReadWriteCloser, error)) {
	defer local.Close()
	defer context.AfterFunc(ctx, func() { local.Close() })()
	far, err := dial(ctx)
	if err != nil {
		return
	}
	defer far.Close()
	defer context.AfterFunc(ctx, func() { far.Close() })()
	copyBothWays(local, far)
}

// copyBothWays copies data between two connections until both directions have ended. The end of one
// direction does not end the other one: the Nix daemon still answers after its client has finished
// sending.
func copyBothWays(a, b io.ReadWriteCloser) {
	var work sync.WaitGroup
	one := func(to, from io.ReadWriteCloser) {
		_, err := io.Copy(to, from)
		if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
			half.CloseWrite()
			return
		}
		// An error in one direction ends both directions.
		a.Close()
		b.Close()
	}
	work.Go(func() { one(a, b) })
	work.Go(func() { one(b, a) })
	work.Wait()
}

// closeGrace is the maximum time that a pending read of a channel takes after Close was called.
const closeGrace = time.Second

// channel is a connection over the SSH connection, to a socket or an address that the node can reach.
//
// The operations of an ssh.Channel, even Close, wait for the server or for a blocked write to the network. If the network drops all
// packets, these operations end only when the SSH connection ends. In contrast, the operations of this type end soon after Close:
// they use pipes, and goroutines copy the data between the pipes and the ssh.Channel.
type channel struct {
	net.Conn
	in    *io.PipeReader // the received data
	out   *io.PipeWriter // the data to send
	close func() error
}

func newChannel(conn net.Conn) *channel {
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
	return &channel{conn, in, out, sync.OnceValue(func() error {
		close(closed)
		sent.CloseWithError(net.ErrClosed)
		time.AfterFunc(closeGrace, func() {
			received.CloseWithError(net.ErrClosed)
			conn.Close() // also if a write waits for a program that reads nothing
		})
		return nil
	})}
}

// Close closes the connection. Pending writes fail at once. Pending reads return the data that the server still sends
// before it confirms the end. They fail after closeGrace.
func (c *channel) Close() error { return c.close() }

func (c *channel) Read(p []byte) (int, error) { return c.in.Read(p) }

// Write passes on p to be sent. An error of the connection is returned by the next Write.
func (c *channel) Write(p []byte) (int, error) { return c.out.Write(p) }

// CloseWrite tells the other side that no data follows.
func (c *channel) CloseWrite() error { return c.out.Close() }
