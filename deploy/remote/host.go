package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
)

const (
	dialAttempts = 3                      // number of attempts of Conn and Fresh; a server that restarts refuses the first ones
	firstWait    = 100 * time.Millisecond // wait between the first two attempts
	longestWait  = 500 * time.Millisecond // maximum wait between later attempts
	longestTry   = 5 * time.Minute        // time limit of WaitReachable if its context has no deadline
	// bootingDial is the time limit of one TCP connection in WaitReachable. While a machine boots, the first packets are lost, and the
	// kernel repeats them after 1, 3, 7 and 15 seconds. A new connection succeeds earlier.
	bootingDial = 3 * time.Second
	askAfter    = 2 * time.Second // time without an answer after which the hypervisor is asked whether the machine runs
)

// Connector connects to a node. *Host implements it.
type Connector interface {
	Conn(ctx context.Context) (*Conn, error)
}

// Host connects to a node. It dials when a connection is first needed, and again after the
// shared connection was lost.
type Host struct {
	cfg    sshconfig.Config
	chosen atomic.Pointer[sshconfig.Config] // the configuration of the host that accepted the first login: cfg or one of its fallbacks; nil before the first login
	opts   Options

	turn       chan struct{} // held while a connection is made, so that concurrent callers share it
	conn       *Conn         // guarded by turn
	handshakes atomic.Int64

	ctx   context.Context // ends when the Host is closed, with the cause ErrClosed
	close context.CancelCauseFunc
}

// NewHost returns a Host. It does not dial.
func NewHost(cfg sshconfig.Config, opts Options) *Host {
	ctx, end := context.WithCancelCause(context.Background())
	opts.host, opts.sudo = ctx, &sudoPassword{}
	return &Host{cfg: cfg, opts: opts, turn: make(chan struct{}, 1), ctx: ctx, close: end}
}

// Config returns the configuration of the host. After the first login it is the configuration that was used, which
// may be one of the fallbacks.
func (h *Host) Config() sshconfig.Config {
	if chosen := h.chosen.Load(); chosen != nil {
		return *chosen
	}
	return h.cfg
}

// Handshakes returns the number of logins so far, without the logins at jump hosts.
func (h *Host) Handshakes() int { return int(h.handshakes.Load()) }

// Conn returns the shared connection, and dials if there is none. If the host refuses connections,
// Conn tries three times within a second; if the host does not answer, Conn tries once.
func (h *Host) Conn(ctx context.Context) (*Conn, error) {
	return h.sharedConn(ctx, dialAttempts)
}

// TryConn is like Conn, but tries once, and without a proxy for only 5 seconds, unless the user has set ConnectTimeout.
func (h *Host) TryConn(ctx context.Context) (*Conn, error) {
	return h.sharedConn(ctx, 1)
}

// WaitReachable is like Conn, but for a machine that is still booting: it tries until ctx ends, or for five minutes if
// ctx has no deadline. If the host key is wrong or the login is refused, it returns the error immediately, since
// waiting does not help. Exception: it continues if the node has another host that is unreachable.
func (h *Host) WaitReachable(ctx context.Context) (*Conn, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, longestTry)
		defer cancel()
	}
	return h.sharedConn(ctx, 0)
}

// Fresh always dials a new connection, to verify that the host still accepts logins. The caller
// must close it. The shared connection is not affected.
func (h *Host) Fresh(ctx context.Context) (*Conn, error) {
	conn, err := h.dialRetrying(ctx, h.opts, dialAttempts, nil)
	if h.ctx.Err() != nil {
		return nil, ErrClosed
	}
	return conn, err
}

func (h *Host) Run(ctx context.Context, cmd Cmd) error {
	conn, err := h.Conn(ctx)
	if err != nil {
		return err
	}
	return conn.Run(ctx, cmd)
}

// Close ends all connections and deletes the sudo password from memory.
func (h *Host) Close() error {
	h.close(ErrClosed)
	h.turn <- struct{}{}
	defer func() { <-h.turn }()
	if h.conn != nil {
		h.conn.Close()
	}
	h.opts.sudo.forget()
	return nil
}

// sharedConn returns the shared connection, and dials if there is none. With 0 attempts, it tries until ctx ends.
func (h *Host) sharedConn(ctx context.Context, attempts int) (*Conn, error) {
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return nil, failure.On(h.cfg.Node, fmt.Errorf("connect to %s: %w", h.Config().Addr(), context.Cause(ctx)))
	}
	if h.conn != nil && h.conn.Err() == nil {
		return h.conn, nil
	}
	if h.ctx.Err() != nil {
		return nil, ErrClosed
	}
	candidates := h.candidates()
	text := "an SSH login at " + joinAddresses(candidates)
	until, limited := ctx.Deadline()
	opts := h.opts
	opts.brief = attempts == 1
	timeout := opts.timeoutOf(h.cfg, true)
	if latest := time.Now().Add(time.Duration(len(candidates)) * timeout); attempts > 0 && (!limited || latest.Before(until)) {
		until = latest
	}
	wait := h.opts.Send.Wait(event.Event{Node: h.cfg.Node, Phase: event.Connect, Text: text, Until: until})
	defer wait.End()
	conn, err := h.dialRetrying(ctx, opts, attempts, func(err error) {
		wait.Change(Reason(err)+"; waits for "+text, until)
	})
	if err != nil {
		return nil, err
	}
	h.conn = conn
	return conn, nil
}

// dialRetrying dials a new connection, and tries again if the host is unreachable. With 0 attempts, it tries until ctx
// ends, and then returns the error of the last attempt. Before it tries again, it calls the function failed, which may
// be nil, with the error of the attempt.
func (h *Host) dialRetrying(ctx context.Context, opts Options, attempts int, failed func(error)) (*Conn, error) {
	var last error
	if attempts == 0 {
		opts.limit = bootingDial
	}
	for try, wait := 1, firstWait; ; try, wait = try+1, min(2*wait, longestWait) {
		begin := time.Now()
		dial := h.dialUnlessDown
		if attempts == 0 { // try again until ctx ends: a machine that boots may be off for a moment
			dial = h.dialInOrder
		}
		conn, err := dial(ctx, opts)
		if err == nil {
			return conn, nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if ctx.Err() == nil && !errors.As(err, new(*UnreachableError)) || try == attempts {
			return nil, err
		}
		if attempts > 0 && time.Since(begin) > 2*time.Second {
			return nil, err // the host did not answer: another attempt would wait as long
		}
		if failed != nil {
			failed(last)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return nil, failure.On(h.cfg.Node, fmt.Errorf("connect to %s: %w", h.Config().Addr(), context.Cause(ctx)))
			}
			return nil, fmt.Errorf("%w (%d attempts)", last, try)
		}
	}
}

// dialUnlessDown dials the hosts of the node in order, as dialInOrder does. If the dial fails or takes more than 2
// seconds, it asks the hypervisor whether the node's machine runs. If the machine does not run, it ends the dial.
func (h *Host) dialUnlessDown(ctx context.Context, opts Options) (*Conn, error) {
	if h.opts.Down == nil {
		return h.dialInOrder(ctx, opts)
	}
	dialing, cancel := context.WithCancel(ctx)
	defer cancel()
	ask := sync.OnceValue(func() string { return h.opts.Down(dialing, h.cfg.Node) })
	late := time.AfterFunc(askAfter, func() {
		if ask() != "" {
			cancel()
		}
	})
	defer late.Stop()
	conn, err := h.dialInOrder(dialing, opts)
	if err == nil || ctx.Err() != nil || errors.Is(err, syscall.ECONNREFUSED) || dialing.Err() == nil && !errors.As(err, new(*UnreachableError)) {
		return conn, err
	}
	if down := ask(); down != "" {
		return nil, NewUnreachableError(h.cfg.Node, h.Config().Addr(), down, err)
	}
	return nil, err
}
