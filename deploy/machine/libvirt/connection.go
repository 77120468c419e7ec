package libvirt

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// connection is the connection to one hypervisor. nixbench opens it when an operation first needs it, and again after it has broken.
type connection struct {
	name string
	o    provider.Hypervisor
	send event.Sink

	// connectTimeout is how long connecting may take. libvirt itself has no limit.
	connectTimeout time.Duration
	// callTimeout is how long a single call may take. In rare cases libvirt never answers a call.
	callTimeout time.Duration

	dialing sync.Mutex // held while a connection is opened; connecting may never end

	mu     sync.Mutex // guards the fields below; never held during a call to libvirt
	conn   *libvirt.Connect
	host   host
	closed bool
}

// operation is a function that runs on a connection to libvirt. It calls beat each time it makes progress, so that it is not abandoned.
type operation func(ctx context.Context, conn *libvirt.Connect, host host, beat func()) error

// Close closes the connection. Running operations have references to the connection, so it stays open until they
// have ended.
func (c *connection) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.conn == nil {
		return nil
	}
	_, err := c.conn.Close()
	c.conn = nil
	return err
}

// cancelGrace is how long an operation may take to return after its context has ended.
const cancelGrace = time.Second

// errNoAnswer is the error of an operation that made no progress for callTimeout.
var errNoAnswer = errors.New("libvirt did not answer a call")

// runWithTimeout executes an operation. It abandons the operation if connecting takes longer than connectTimeout, the operation makes no
// progress for callTimeout, or the context ends. libvirt cannot interrupt a call, so the call of an abandoned operation continues in its
// goroutine. The context of the operation is cancelled, so the operation returns before its next change.
func (c *connection) runWithTimeout(ctx context.Context, op operation) error {
	if err := ctx.Err(); err != nil {
		return c.wrapError("", "connect", err, "")
	}
	own, leave := context.WithCancel(ctx)
	defer leave()
	beats := make(chan struct{}, 1)
	beat := func() {
		select {
		case beats <- struct{}{}:
		default:
		}
	}
	done := make(chan error, 1)
	go func() { done <- c.runWithReconnect(own, beat, op) }()
	connected := false
	silence := time.NewTimer(c.connectTimeout)
	defer silence.Stop()
	for waiting := true; waiting; {
		select {
		case err := <-done:
			return err
		case <-beats:
			connected = true
			silence.Reset(c.callTimeout)
		case <-silence.C:
			if !connected {
				return c.newUnreachableError(fmt.Errorf("it did not answer for %s", c.connectTimeout))
			}
			c.mu.Lock()
			conn := c.conn
			c.mu.Unlock()
			if conn != nil {
				c.dropConnection(conn)
			}
			return c.wrapError("", "wait for an answer", fmt.Errorf("%w for %s", errNoAnswer, c.callTimeout), "look at the log of libvirtd there, or restart it: systemctl restart libvirtd")
		case <-ctx.Done():
			waiting = false
		}
	}
	select {
	case err := <-done:
		return err
	case <-time.After(cancelGrace):
		return c.wrapError("", "wait for an answer", ctx.Err(), "")
	}
}

// reconnectTimeout is how long a hypervisor may be unreachable during an operation.
const reconnectTimeout = 15 * time.Second

// runWithReconnect executes an operation. Each time the connection breaks, it repeats the operation on a new connection.
// It calls beat when the operation makes progress.
func (c *connection) runWithReconnect(ctx context.Context, beat func(), op operation) error {
	conn, host, err := c.connect()
	for err == nil {
		beat()
		if err = ctx.Err(); err == nil {
			err = op(ctx, conn, host, beat)
		}
		alive := true
		if err != nil && ctx.Err() == nil {
			alive, _ = conn.IsAlive()
		}
		if !alive {
			c.dropConnection(conn)
		}
		_, _ = conn.Close() // release this operation's reference
		if alive {
			return err
		}
		for since := time.Now(); ; {
			if conn, host, err = c.connect(); err == nil || time.Since(since) > reconnectTimeout {
				break
			}
			select {
			case <-ctx.Done():
				return c.wrapError("", "reconnect", ctx.Err(), "")
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
	return err
}

// connect returns the existing connection, or opens a new one. The caller gets its own reference to the connection and
// must close it. The connection stays open until then, even if the Hypervisor is closed first.
func (c *connection) connect() (*libvirt.Connect, host, error) {
	c.dialing.Lock()
	defer c.dialing.Unlock()
	if conn, about := c.currentConnection(); conn != nil {
		if alive, err := conn.IsAlive(); err == nil && alive {
			return conn, about, nil
		}
		c.dropConnection(conn)
		_, _ = conn.Close()
	}
	startEvents()
	conn, err := libvirt.NewConnect(c.o.URI)
	if err != nil {
		return nil, host{}, c.newUnreachableError(err)
	}
	// Without keepalive, calls to an unreachable host would hang for hours. Errors are ignored:
	// local connections need no keepalive, and the test driver does not support it.
	_ = conn.SetKeepAlive(5, 6)
	about, err := c.examineHost(conn)
	if err == nil {
		err = conn.Ref()
	}
	if err != nil {
		conn.Close()
		return nil, host{}, c.newUnreachableError(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed { // Close was called while the connection was opened
		conn.Close()
		conn.Close()
		return nil, host{}, c.newUnreachableError(errors.New("the connection was closed"))
	}
	c.conn, c.host = conn, about
	return conn, about, nil
}

// currentConnection returns the existing connection with a reference for the caller; nil if there is none.
func (c *connection) currentConnection() (*libvirt.Connect, host) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil || c.conn.Ref() != nil {
		return nil, host{}
	}
	return c.conn, c.host
}

// dropConnection closes the connection if it is the current connection, so that connect opens a new connection.
func (c *connection) dropConnection(conn *libvirt.Connect) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == conn {
		c.conn.Close()
		c.conn = nil
	}
}

// startEvents starts libvirt's event loop, which sends keepalive messages. A process can have only one event loop.
var startEvents = sync.OnceFunc(func() {
	if libvirt.EventRegisterDefaultImpl() != nil {
		return
	}
	go func() {
		for libvirt.EventRunDefaultImpl() == nil {
		}
	}()
})
