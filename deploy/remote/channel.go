package remote

import (
	"io"
	"net"
	"sync"
	"time"
)

// closeGrace is the maximum time that a pending read of a channel takes after Close was called.
const closeGrace = time.Second

// channel is a connection over the SSH connection, to a socket or an address that the node can reach.
//
// The operations of an ssh.Channel, even Close, wait for the server or for a blocked write to the network. If the network drops all
// packets, these operations end only when the SSH connection ends. In contrast, the operations of this type end soon after Close.
type channel struct {
	net.Conn
	in     *io.PipeReader // the received data
	closed chan struct{}
	close  func() error

	writing sync.Mutex
	out     []byte // the data of the last write, which may still be pending when the channel is closed
}

func newChannel(conn net.Conn) *channel {
	in, received := io.Pipe()
	go func() {
		_, err := io.Copy(received, conn)
		received.CloseWithError(err) // io.EOF if err is nil
	}()
	c := &channel{Conn: conn, in: in, closed: make(chan struct{})}
	c.close = sync.OnceValue(func() error {
		close(c.closed)
		go conn.Close()
		time.AfterFunc(closeGrace, func() { received.CloseWithError(net.ErrClosed) })
		return nil
	})
	return c
}

// Close closes the connection. Pending writes fail at once. Pending reads return the data that the server still sends
// before it confirms the end. They fail after closeGrace.
func (c *channel) Close() error { return c.close() }

func (c *channel) Read(p []byte) (int, error) { return c.in.Read(p) }

// Write writes a copy of p. If Close ends a write, the SSH connection may still read the data of that write, and
// callers such as bufio.Writer change p after a failed write.
func (c *channel) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	default:
	}
	c.out = append(c.out[:0], p...)
	return c.untilClosed(func() (int, error) { return c.Conn.Write(c.out) })
}

// CloseWrite tells the other side that no data follows.
func (c *channel) CloseWrite() error {
	_, err := c.untilClosed(func() (int, error) { return 0, c.Conn.(interface{ CloseWrite() error }).CloseWrite() })
	return err
}

// untilClosed calls an operation. If the channel is closed, untilClosed does not wait for the operation.
func (c *channel) untilClosed(operation func() (int, error)) (int, error) {
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	default:
	}
	type result struct {
		n   int
		err error
	}
	ended := make(chan result, 1)
	go func() {
		n, err := operation()
		ended <- result{n, err}
	}()
	select {
	case r := <-ended:
		return r.n, r.err
	case <-c.closed:
		return 0, net.ErrClosed
	}
}
