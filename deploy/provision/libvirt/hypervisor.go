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

// Options are those of a hypervisor in the hive.
type Options struct {
	URI      string
	Pool     string // its name
	PoolPath string // folder of the hypervisor, where the pool is made
	Send     event.Sink
}

// Hypervisor is a [provision.Provider], and all else that one may be.
type Hypervisor struct {
	name string
	o    Options

	// patience is how long a guest has to end by itself.
	shutdownTimeout time.Duration
	// answer is how long connecting may take: libvirt itself waits for ever.
	connectTimeout time.Duration
	// silence is how long a call may take: of libvirt's, now and then one is never answered.
	callTimeout time.Duration
	// effect is called before each effect; tests cut operations off there.
	onEffect func(what string) error

	dialing sync.Mutex // held, perhaps for ever, while a connection is made

	mu     sync.Mutex // of what follows; never held while libvirt is waited for
	conn   *libvirt.Connect
	host   host
	closed bool
	// dissolved are IDs of clusters of which nothing is to be left.
	removedClusters map[string]bool

	storage sync.Mutex // held where the pool or a network is made or removed

	// uploads of containers' roots: libvirtd is busy with two, and with all at once none would
	// boot before the last is there.
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

// Open checks the options. It connects only when something is asked of the hypervisor.
func Open(name string, o Options) (*Hypervisor, error) {
	h := &Hypervisor{name: name, o: o, shutdownTimeout: time.Minute, connectTimeout: time.Minute, callTimeout: 2 * time.Minute, uploads: make(chan struct{}, 2), removedClusters: map[string]bool{}}
	u, err := url.Parse(o.URI)
	if err != nil || u.Scheme == "" {
		return nil, h.fail("", "connect", fmt.Errorf("%q is no libvirt URI", o.URI), "use one such as qemu:///system or lxc:///system")
	}
	if strings.HasPrefix(u.Scheme, "qemu") && (u.Path == "/session" || u.Path == "/embed") {
		return nil, h.fail("", "connect", fmt.Errorf("%s has no networks and gives no addresses", o.URI),
			"use qemu:///system; members of the group libvirt may")
	}
	if o.Pool == "" || o.PoolPath == "" {
		return nil, h.fail("", "connect", errors.New("no storage pool is named"), "")
	}
	return h, nil
}

// Close ends the connection. Operations that nobody waits for any more keep it until they end.
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

// session is one operation on one connection. It has the operation's context, since
// all it does ends with that.
type session struct {
	ctx            context.Context
	h              *Hypervisor
	conn           *libvirt.Connect
	host           host
	reportProgress func() // it goes on
}

// grace is how long an operation whose context has ended may take to notice.
const cancelGrace = time.Second

// errSilent: a call was not answered.
var errNoAnswer = errors.New("a call to libvirt was never answered")

// run runs an operation, again if the connection breaks, and once more on another connection
// if it is silent.
func (h *Hypervisor) run(ctx context.Context, op func(*session) error) error {
	err := h.runWithTimeout(ctx, op)
	if errors.Is(err, errNoAnswer) && ctx.Err() == nil {
		err = h.runWithTimeout(ctx, op)
	}
	return err
}

// watched leaves an operation alone that does not go on, or whose context has ended. Should it get its
// answer after all, it notices that nobody waits for it before it has another effect.
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
			return h.fail("", "wait for an answer", fmt.Errorf("%w for %s", errNoAnswer, h.callTimeout), "see what libvirtd does there, or restart it: systemctl restart libvirtd")
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

// lost is how long a hypervisor that has answered may be gone.
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
		_, _ = conn.Close() // this operation's hold on it
		if alive {
			return err
		}
		for since := time.Now(); ; {
			if conn, host, err = h.acquire(ctx); err == nil || time.Since(since) > reconnectTimeout {
				break
			}
			select {
			case <-ctx.Done():
				return h.fail("", "connect again", ctx.Err(), "")
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
	return err
}

// acquire gives the connection, which its user has to close: it may outlive the
// hypervisor, and must not be freed below it. libvirt's connecting cannot be interrupted and knows no
// deadline, so it goes on by itself when it is given up.
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
		return nil, host{}, h.unreachableError(fmt.Errorf("it said nothing for %s", h.connectTimeout))
	}
}

// connect gives the one connection there is, or makes it, with a hold on it for the caller.
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
	// A host that is no longer there would otherwise be waited for for hours. Local
	// connections need none, and the test driver has none.
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
	if h.closed { // while it was being made
		conn.Close()
		conn.Close()
		return nil, host{}, h.unreachableError(errors.New("the connection was closed"))
	}
	h.conn, h.host = conn, about
	return conn, about, nil
}

// connected is the connection there is, held for the caller; or nil.
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

// startEvents starts libvirt's event loop, of which a process can have only one. It
// keeps connections alive.
var startEvents = sync.OnceFunc(func() {
	if libvirt.EventRegisterDefaultImpl() != nil {
		return
	}
	go func() {
		for libvirt.EventRunDefaultImpl() == nil {
		}
	}()
})

// about to have an effect: the last chance to stop.
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

// turn waits for a place among those that may do something at once.
func (s *session) acquireSlot(places chan struct{}) error {
	for {
		select {
		case places <- struct{}{}:
			return nil
		case <-s.ctx.Done():
			return s.ctx.Err()
		case <-time.After(time.Second):
			s.reportProgress() // others go on, or are found to be silent
		}
	}
}
