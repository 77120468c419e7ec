package libvirt

import (
	"sync"

	"libvirt.org/go/libvirt"
)

// Close closes the connection. Running operations have references to the connection, so it stays open until they have ended. The next
// operation opens another connection.
func (h *Hypervisor) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
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
		return conn, about, nil
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
	h.conn, h.host = conn, about
	return conn, about, nil
}

// currentConnection returns the existing connection with a reference for the caller; nil if there is none, or if it is broken.
func (h *Hypervisor) currentConnection() (*libvirt.Connect, host) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conn == nil {
		return nil, host{}
	}
	if alive, err := h.conn.IsAlive(); err == nil && alive && h.conn.Ref() == nil { // without a request to libvirt
		return h.conn, h.host
	}
	h.conn.Close()
	h.conn = nil
	return nil, host{}
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
