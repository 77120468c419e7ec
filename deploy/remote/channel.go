package remote

import (
	"cmp"
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
