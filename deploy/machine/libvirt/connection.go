package libvirt

import (
	"errors"
	"sync"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

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

// dropConnection closes the current connection, so that connect opens a new connection. If conn is not nil, it does so only if conn is
// the current connection.
func (c *connection) dropConnection(conn *libvirt.Connect) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil && (conn == nil || c.conn == conn) {
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
