package libvirt

import (
	"errors"
	"sync"

	"libvirt.org/go/libvirt"
)

// Close closes the connection. Running operations have references to the connection, so it stays open until they have ended.
func (h *Hypervisor) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if h.conn == nil {
		return nil
	}
	_, err := h.conn.Close()
	h.conn = nil
	return err
}

// connect returns the existing connection, or opens a new one. The caller gets its own reference to the connection and
// must close it. The connection stays open until then, even if the Hypervisor is closed first.
func (h *Hypervisor) connect() (*libvirt.Connect, host, error) {
	h.dialing.Lock()
	defer h.dialing.Unlock()
	if conn, about := h.currentConnection(); conn != nil {
		if alive, err := conn.IsAlive(); err == nil && alive {
			return conn, about, nil
		}
		h.dropConnection(conn)
		_, _ = conn.Close()
	}
	startEvents()
	conn, err := libvirt.NewConnect(h.o.URI)
	if err != nil {
		return nil, host{}, h.newUnreachableError(err)
	}
	// Without keepalive, calls to an unreachable host would hang for hours. Errors are ignored:
	// local connections need no keepalive, and the test driver does not support it.
	_ = conn.SetKeepAlive(5, 6)
	about, err := h.examineHost(conn)
	if err == nil {
		err = conn.Ref()
	}
	if err != nil {
		conn.Close()
		return nil, host{}, h.newUnreachableError(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed { // Close was called while the connection was opened
		conn.Close()
		conn.Close()
		return nil, host{}, h.newUnreachableError(errors.New("the connection was closed"))
	}
	h.conn, h.host = conn, about
	return conn, about, nil
}

// currentConnection returns the existing connection with a reference for the caller; nil if there is none.
func (h *Hypervisor) currentConnection() (*libvirt.Connect, host) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conn == nil || h.conn.Ref() != nil {
		return nil, host{}
	}
	return h.conn, h.host
}

// dropConnection closes the current connection, so that connect opens a new connection. If conn is not nil, it does so only if conn is
// the current connection.
func (h *Hypervisor) dropConnection(conn *libvirt.Connect) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conn != nil && (conn == nil || h.conn == conn) {
		h.conn.Close()
		h.conn = nil
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
