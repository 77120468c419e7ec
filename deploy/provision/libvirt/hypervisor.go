package libvirt

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/provision"
)

// Options are the settings of a hypervisor in the hive.
type Options struct {
	URI      string
	Pool     string // name of the storage pool
	PoolPath string // the hypervisor's folder in which the pool is created
	Send     event.Sink
}

// Hypervisor implements [provision.Provider] and all its optional interfaces.
type Hypervisor struct {
	name string
	o    Options

	// shutdownTimeout is how long a guest may take to shut down.
	shutdownTimeout time.Duration
	// connectTimeout limits connecting, which has no limit in libvirt.
	connectTimeout time.Duration
	// callTimeout limits a single call: rarely, libvirt never answers one.
	callTimeout time.Duration
	// volumeTimeout is how long a volume that is being written may delay its removal.
	volumeTimeout time.Duration
	// onEffect, if set, is called before each effect. Tests interrupt operations with it.
	onEffect func(what string) error

	dialing sync.Mutex // held while connecting, possibly for ever

	mu     sync.Mutex // guards the fields below; never held during a call to libvirt
	conn   *libvirt.Connect
	host   host
	closed bool
	// removedClusters are the IDs of clusters that are being removed as a whole.
	removedClusters map[string]bool

	storage sync.Mutex // held while the pool or a network is created or removed

	// uploads limits concurrent uploads of containers' root disks to two. Two keep libvirtd busy; with all
	// at once, no container could boot before the last upload had finished.
	uploads chan struct{}
}

var (
	_ provision.Provider       = (*Hypervisor)(nil)
	_ provision.Discoverer     = (*Hypervisor)(nil)
	_ provision.Console        = (*Hypervisor)(nil)
	_ provision.Cleaner        = (*Hypervisor)(nil)
	_ provision.Checker        = (*Hypervisor)(nil)
	_ provision.ClusterRemover = (*Hypervisor)(nil)
	_ provision.Doctor         = (*Hypervisor)(nil)
)

// Open validates the options. The connection is made by the first operation.
func Open(name string, o Options) (*Hypervisor, error) {
	h := &Hypervisor{
		name: name, o: o, shutdownTimeout: time.Minute, connectTimeout: time.Minute, callTimeout: 2 * time.Minute,
		volumeTimeout: 2 * time.Minute, uploads: make(chan struct{}, 2), removedClusters: map[string]bool{},
	}
	u, err := url.Parse(o.URI)
	if err != nil || u.Scheme == "" {
		return nil, h.fail("", "connect", fmt.Errorf("%q is not a libvirt URI", o.URI), "use one such as qemu:///system or lxc:///system")
	}
	if strings.HasPrefix(u.Scheme, "qemu") && (u.Path == "/session" || u.Path == "/embed") {
		return nil, h.fail("", "connect", fmt.Errorf("%s has no networks and assigns no addresses", o.URI),
			"use qemu:///system, which members of the group libvirt may use")
	}
	if o.Pool == "" || o.PoolPath == "" {
		return nil, h.fail("", "connect", errors.New("no storage pool is set"), "")
	}
	return h, nil
}

// Close closes the connection. Operations that are still running keep a reference to it until they end.
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

// session is one operation on one connection. It contains the operation's context because the session's
// lifetime is that of the operation.
type session struct {
	ctx            context.Context
	h              *Hypervisor
	conn           *libvirt.Connect
	host           host
	reportProgress func() // tells runWithTimeout that the operation is not stuck
}

// cancelGrace is how long an operation may take to return after its context has ended.
const cancelGrace = time.Second

// errNoAnswer: a call was not answered.
var errNoAnswer = errors.New("libvirt did not answer a call")

// run executes an operation. It is retried when the connection breaks, and once on a new connection when a
// call is not answered.
func (h *Hypervisor) run(ctx context.Context, op func(*session) error) error {
	err := h.runWithTimeout(ctx, op)
	if errors.Is(err, errNoAnswer) && ctx.Err() == nil {
		err = h.runWithTimeout(ctx, op)
	}
	return err
}

// runWithTimeout executes an operation and stops waiting for it when it makes no progress for callTimeout or
// when its context ends. An abandoned operation has a cancelled context, so it returns before its next
// effect.
func (h *Hypervisor) runWithTimeout(ctx context.Context, op func(*session) error) error {
	if err := ctx.Err(); err != nil {
		return h.fail("", "connect", err, "")
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
	go func() { done <- h.runWithReconnect(own, beat, op) }()
	silence := time.NewTimer(h.callTimeout)
	defer silence.Stop()
	for waiting := true; waiting; {
		select {
		case err := <-done:
			return err
		case <-beats:
			silence.Reset(h.callTimeout)
		case <-silence.C:
			h.mu.Lock()
			conn := h.conn
			h.mu.Unlock()
			if conn != nil {
				h.dropConnection(conn)
			}
			return h.fail("", "wait for an answer", fmt.Errorf("%w for %s", errNoAnswer, h.callTimeout), "look at the log of libvirtd there, or restart it: systemctl restart libvirtd")
		case <-ctx.Done():
			waiting = false
		}
	}
	select {
	case err := <-done:
		return err
	case <-time.After(cancelGrace):
		return h.fail("", "wait for an answer", ctx.Err(), "")
	}
}

// reconnectTimeout is how long a hypervisor may be unreachable during an operation.
const reconnectTimeout = 15 * time.Second

func (h *Hypervisor) runWithReconnect(ctx context.Context, beat func(), op func(*session) error) error {
	conn, host, err := h.acquire(ctx)
	for err == nil {
		beat()
		err = op(&session{ctx: ctx, h: h, conn: conn, host: host, reportProgress: beat})
		alive := true
		if err != nil && ctx.Err() == nil {
			alive, _ = conn.IsAlive()
		}
		if !alive {
			h.dropConnection(conn)
		}
		_, _ = conn.Close() // release this operation's reference
		if alive {
			return err
		}
		for since := time.Now(); ; {
			if conn, host, err = h.acquire(ctx); err == nil || time.Since(since) > reconnectTimeout {
				break
			}
			select {
			case <-ctx.Done():
				return h.fail("", "reconnect", ctx.Err(), "")
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
	return err
}

// acquire returns the connection with a reference that the caller has to close: an operation may outlive the
// Hypervisor, and the connection must not be freed during it. Connecting in libvirt has no deadline and
// cannot be interrupted, so after a timeout it continues in its goroutine.
func (h *Hypervisor) acquire(ctx context.Context) (*libvirt.Connect, host, error) {
	type answer struct {
		conn *libvirt.Connect
		host host
		err  error
	}
	answers := make(chan answer)
	over := make(chan struct{})
	defer close(over)
	go func() {
		var a answer
		a.conn, a.host, a.err = h.connect()
		select {
		case answers <- a:
		case <-over:
			if a.err == nil {
				_, _ = a.conn.Close()
			}
		}
	}()
	select {
	case a := <-answers:
		return a.conn, a.host, a.err
	case <-ctx.Done():
		return nil, host{}, h.fail("", "connect", ctx.Err(), "")
	case <-time.After(h.connectTimeout):
		return nil, host{}, h.unreachableError(fmt.Errorf("it did not answer for %s", h.connectTimeout))
	}
}

// connect returns the existing connection or makes a new one, with a reference for the caller.
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
		return nil, host{}, h.unreachableError(err)
	}
	// Without keepalive, calls to a host that has disappeared would hang for hours. Errors are ignored:
	// local connections need no keepalive, and the test driver does not support it.
	_ = conn.SetKeepAlive(5, 6)
	about, err := h.examineHost(conn)
	if err == nil {
		err = conn.Ref()
	}
	if err != nil {
		conn.Close()
		return nil, host{}, h.unreachableError(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed { // Close was called meanwhile
		conn.Close()
		conn.Close()
		return nil, host{}, h.unreachableError(errors.New("the connection was closed"))
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

func (h *Hypervisor) dropConnection(conn *libvirt.Connect) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conn == conn {
		h.conn.Close()
		h.conn = nil
	}
}

// startEvents starts libvirt's event loop, which sends keepalive messages. A process can have only one.
var startEvents = sync.OnceFunc(func() {
	if libvirt.EventRegisterDefaultImpl() != nil {
		return
	}
	go func() {
		for libvirt.EventRunDefaultImpl() == nil {
		}
	}()
})

// beforeEffect is called before every effect and returns an error if the operation has to stop.
func (s *session) beforeEffect(what string) error {
	s.reportProgress()
	if err := s.ctx.Err(); err != nil {
		return err
	}
	if s.h.onEffect != nil {
		return s.h.onEffect(what)
	}
	return nil
}

func (s *session) sleep(d time.Duration) error {
	s.reportProgress()
	select {
	case <-s.ctx.Done():
		return s.ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// acquireSlot waits for a free slot in a semaphore.
func (s *session) acquireSlot(places chan struct{}) error {
	for {
		select {
		case places <- struct{}{}:
			return nil
		case <-s.ctx.Done():
			return s.ctx.Err()
		case <-time.After(time.Second):
			s.reportProgress() // the operations that hold the slots have timeouts of their own
		}
	}
}
