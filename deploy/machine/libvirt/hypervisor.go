package libvirt

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// Options are the settings of a hypervisor in the hive.
type Options struct {
	URI      string
	Pool     string // name of the storage pool
	PoolPath string // the hypervisor's folder in which the pool is created
	Send     event.Sink
}

// Hypervisor implements [provider.Provider] and all its optional interfaces.
type Hypervisor struct {
	name string
	o    Options

	// shutdownTimeout is how long a guest may take to shut down.
	shutdownTimeout time.Duration
	// connectTimeout is how long connecting may take. libvirt itself has no limit.
	connectTimeout time.Duration
	// callTimeout is how long a single call may take. In rare cases libvirt never answers a call.
	callTimeout time.Duration
	// volumeTimeout is how long the removal of a volume waits while the volume is being written.
	volumeTimeout time.Duration
	// onChange, if set, is called before each change on the hypervisor. Tests use it to interrupt operations.
	onChange func(what string) error

	dialing sync.Mutex // held while connecting, which may never end

	mu     sync.Mutex // guards the fields below; never held during a call to libvirt
	conn   *libvirt.Connect
	host   host
	closed bool
	// removedClusters are the IDs of clusters that are being removed as a whole.
	removedClusters map[string]bool

	storage sync.Mutex // held while the pool or a network is created or removed

	// uploads limits concurrent uploads of containers' root disks to two. Two uploads keep libvirtd
	// busy. With more uploads at once, the first container could boot only after almost all uploads had finished.
	uploads chan struct{}
}

var (
	_ provider.Provider       = (*Hypervisor)(nil)
	_ provider.Discoverer     = (*Hypervisor)(nil)
	_ provider.Console        = (*Hypervisor)(nil)
	_ provider.Terminal       = (*Hypervisor)(nil)
	_ provider.Power          = (*Hypervisor)(nil)
	_ provider.Cleaner        = (*Hypervisor)(nil)
	_ provider.Checker        = (*Hypervisor)(nil)
	_ provider.ClusterRemover = (*Hypervisor)(nil)
	_ provider.Doctor         = (*Hypervisor)(nil)
)

// Open validates the options and returns the hypervisor. The first operation opens the connection.
func Open(name string, o Options) (*Hypervisor, error) {
	h := &Hypervisor{
		name: name, o: o, shutdownTimeout: time.Minute, connectTimeout: time.Minute, callTimeout: 2 * time.Minute,
		volumeTimeout: 2 * time.Minute, uploads: make(chan struct{}, 2), removedClusters: map[string]bool{},
	}
	u, err := url.Parse(o.URI)
	if err != nil || u.Scheme == "" {
		return nil, h.wrapError("", "connect", fmt.Errorf("%q is not a libvirt URI", o.URI), "use one such as qemu:///system or lxc:///system")
	}
	if strings.HasPrefix(u.Scheme, "qemu") && (u.Path == "/session" || u.Path == "/embed") {
		return nil, h.wrapError("", "connect", fmt.Errorf("%s has no networks and assigns no addresses", o.URI),
			"use qemu:///system, which members of the group libvirt may use")
	}
	if err := checkURI(u); err != nil {
		return nil, failure.WithKind(failure.Usage, h.wrapError("", "connect", fmt.Errorf("cluster.hypervisors.%s.uri = %q: %w", name, o.URI, err), "use one such as qemu:///system or qemu+ssh://root@host/system"))
	}
	if o.Pool == "" || o.PoolPath == "" {
		return nil, h.wrapError("", "connect", errors.New("no storage pool is set"), "")
	}
	return h, nil
}

// Parts of the URIs with which nixbench connects. A hive chooses its URIs, and others make libvirt run a program here, such as the
// transport ext and the parameter command, or let the libvirt of another host open another URI, such as the parameter name.
var (
	drivers    = []string{"qemu", "lxc", "test"}
	transports = []string{"", "unix", "ssh", "libssh", "libssh2", "tcp", "tls"}
	parameters = []string{"socket", "mode", "proxy", "keyfile", "known_hosts", "known_hosts_verify", "sshauth", "no_tty", "no_verify", "no_sanity", "pkipath", "tls_priority"}
)

// checkURI returns an error if a URI has another part.
func checkURI(u *url.URL) error {
	driver, transport, _ := strings.Cut(u.Scheme, "+")
	switch {
	case !slices.Contains(drivers, driver):
		return fmt.Errorf("the driver %s is not supported, only %s", driver, strings.Join(drivers, ", "))
	case !slices.Contains(transports, transport):
		return fmt.Errorf("the transport %s is not supported, only %s", transport, strings.Join(transports[1:], ", "))
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return err
	}
	for name := range query {
		if !slices.Contains(parameters, name) {
			return fmt.Errorf("the parameter %s is not supported, only %s", name, strings.Join(parameters, ", "))
		}
	}
	return nil
}

// Close closes the connection. Running operations have references to the connection, so it stays open until they
// have ended.
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

// session is one operation on one connection. It contains the operation's context, because it exists
// only during the operation.
type session struct {
	ctx            context.Context
	h              *Hypervisor
	conn           *libvirt.Connect
	host           host
	reportProgress func() // restarts the callTimeout of runWithTimeout
}

// cancelGrace is how long an operation may take to return after its context has ended.
const cancelGrace = time.Second

// errNoAnswer is the error of an operation that made no progress for callTimeout.
var errNoAnswer = errors.New("libvirt did not answer a call")

// runOperation executes an operation. It retries the operation when the connection breaks, and once when
// libvirt does not answer a call. Each retry has a new connection.
func (h *Hypervisor) runOperation(ctx context.Context, op func(*session) error) error {
	err := h.runWithTimeout(ctx, op)
	if errors.Is(err, errNoAnswer) && ctx.Err() == nil {
		err = h.runWithTimeout(ctx, op)
	}
	return err
}

// runWithTimeout executes an operation. It abandons the operation if the operation makes no progress for callTimeout
// or the context ends. The context of an abandoned operation is cancelled, so it returns before its next change.
func (h *Hypervisor) runWithTimeout(ctx context.Context, op func(*session) error) error {
	if err := ctx.Err(); err != nil {
		return h.wrapError("", "connect", err, "")
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
			return h.wrapError("", "wait for an answer", fmt.Errorf("%w for %s", errNoAnswer, h.callTimeout), "look at the log of libvirtd there, or restart it: systemctl restart libvirtd")
		case <-ctx.Done():
			waiting = false
		}
	}
	select {
	case err := <-done:
		return err
	case <-time.After(cancelGrace):
		return h.wrapError("", "wait for an answer", ctx.Err(), "")
	}
}

// reconnectTimeout is how long a hypervisor may be unreachable during an operation.
const reconnectTimeout = 15 * time.Second

// runWithReconnect executes an operation. Each time the connection breaks, it repeats the operation on a new connection.
// It calls beat when the operation makes progress.
func (h *Hypervisor) runWithReconnect(ctx context.Context, beat func(), op func(*session) error) error {
	conn, host, err := h.acquireConnection(ctx)
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
			if conn, host, err = h.acquireConnection(ctx); err == nil || time.Since(since) > reconnectTimeout {
				break
			}
			select {
			case <-ctx.Done():
				return h.wrapError("", "reconnect", ctx.Err(), "")
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
	return err
}

// acquireConnection returns the connection with a reference, which the caller has to close. The connection remains
// open until then, even if the Hypervisor is closed before. libvirt cannot interrupt connecting, so
// after connectTimeout acquireConnection returns an error, and the goroutine continues to connect.
func (h *Hypervisor) acquireConnection(ctx context.Context) (*libvirt.Connect, host, error) {
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
		return nil, host{}, h.wrapError("", "connect", ctx.Err(), "")
	case <-time.After(h.connectTimeout):
		return nil, host{}, h.newUnreachableError(fmt.Errorf("it did not answer for %s", h.connectTimeout))
	}
}

// connect returns the existing connection, or opens a new connection, with a reference for the caller.
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

// dropConnection closes the connection if it is the current connection, so that connect opens a new connection.
func (h *Hypervisor) dropConnection(conn *libvirt.Connect) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conn == conn {
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

// beforeChange is called before every change on the hypervisor. It returns an error if the operation has to stop.
func (s *session) beforeChange(what string) error {
	s.reportProgress()
	if err := s.ctx.Err(); err != nil {
		return err
	}
	if s.h.onChange != nil {
		return s.h.onChange(what)
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

// acquireSlot waits for a free slot in a semaphore, and takes the slot.
func (s *session) acquireSlot(places chan struct{}) error {
	for {
		select {
		case places <- struct{}{}:
			return nil
		case <-s.ctx.Done():
			return s.ctx.Err()
		case <-time.After(time.Second):
			s.reportProgress() // waiting is progress: each operation with a slot has its own timeout
		}
	}
}
