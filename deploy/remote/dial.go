package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
)

// Options are the same for every node of a run.
type Options struct {
	// AcceptNewHostKeys adds the keys of unknown hosts to known_hosts. A
	// changed key is refused all the same.
	AcceptNewHostKeys bool

	// Prompt asks for passphrases and sudo passwords. Nil: no prompts.
	Prompt Prompt

	// Keyring keeps opened keys for other nodes. Nil: one per connection.
	Keyring *Keyring

	// KnownHosts keeps known_hosts files for other nodes. Nil: one per connection.
	KnownHosts *KnownHosts

	Timeout           time.Duration // to connect and log in; 0: 15 s, or ConnectTimeout
	KeepAliveInterval time.Duration // 0: 15 s, or ServerAliveInterval
	KeepAliveMax      int           // unanswered keepalives before the connection is lost; 0: 3

	// Send receives events about waits for connections. May be nil.
	Send event.Sink

	// DialContext opens the TCP connection. Nil: net.Dialer.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)

	sudo *sudoPassword // shared by all connections of a Host
}

func (o Options) withDefaults(cfg Config) Options {
	if o.Keyring == nil {
		o.Keyring = &Keyring{}
	}
	if o.KnownHosts == nil {
		o.KnownHosts = &KnownHosts{}
	}
	if o.DialContext == nil {
		o.DialContext = (&net.Dialer{}).DialContext
	}
	o.Timeout = firstPositive(o.Timeout, cfg.ConnectTimeout, 15*time.Second)
	o.KeepAliveInterval = firstPositive(o.KeepAliveInterval, cfg.KeepAliveInterval, 15*time.Second)
	o.KeepAliveMax = firstPositive(o.KeepAliveMax, cfg.KeepAliveMax, 3)
	return o
}

func firstPositive[T int | time.Duration](values ...T) T {
	for _, v := range values {
		if v > 0 {
			return v
		}
	}
	return 0
}

// Dial opens one SSH connection and logs in.
func Dial(ctx context.Context, cfg Config, opts Options) (*Conn, error) {
	full := opts.withDefaults(cfg)
	hosts, err := loadHostKeys(cfg, full.AcceptNewHostKeys || cfg.AcceptNew, full.KnownHosts)
	if err != nil {
		return nil, err
	}

	// The time limit covers everything up to the login, except while a user is prompted.
	// Some transports do not support deadlines, so it cancels a context, which closes the
	// connection.
	limited, clock := startClock(ctx, full.Timeout)
	defer clock.stop()

	id := &identities{cfg: cfg, keyring: full.Keyring, pause: clock.pause}
	if ask := full.Prompt; ask != nil {
		id.ask = func(ctx context.Context, question string) ([]byte, error) {
			defer clock.pause()()
			return ask(ctx, question)
		}
	}
	closeAgent := id.load(ctx)
	defer closeAgent()

	raw, via, err := transport(limited, clock, cfg, opts, full)
	if err != nil {
		return nil, dialError(ctx, cfg, clock, err)
	}
	tracked := &trackedConn{Conn: raw}
	tracked.touch()
	client, err := handshake(limited, tracked, cfg, full, hosts, id)
	if err != nil {
		raw.Close()
		if proxy, ok := raw.(*proxyConn); ok {
			if said := proxy.said(); said != "" {
				err = fmt.Errorf("%w (the proxy command says: %s)", err, said)
			}
		}
		if via != nil {
			via.Close()
		}
		return nil, loginError(ctx, cfg, clock, hosts, id, err)
	}
	return newConn(cfg, full, client, tracked, via), nil
}

// handshake agrees on keys, checks the host's key and logs in.
func handshake(ctx context.Context, conn net.Conn, cfg Config, opts Options, hosts *hostKeys, id *identities) (*ssh.Client, error) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	c, channels, requests, err := ssh.NewClientConn(conn, cfg.Addr(), &ssh.ClientConfig{
		User:              cfg.User,
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(id.signers...)},
		HostKeyCallback:   hosts.check,
		HostKeyAlgorithms: hosts.algorithms(),
		ClientVersion:     "SSH-2.0-nixbench",
	})
	if err != nil {
		return nil, err
	}
	if !stop() { // the time limit expired at the end of the handshake
		c.Close()
		return nil, context.Cause(ctx)
	}
	return ssh.NewClient(c, channels, requests), nil
}

// dialError returns the error for a failed transport connection.
func dialError(ctx context.Context, cfg Config, clock *clock, err error) error {
	if ctx.Err() != nil {
		return failure.On(cfg.Node, fmt.Errorf("connect to %s: %w", cfg.Addr(), context.Cause(ctx)))
	}
	var unknown *HostKeyUnknownError
	var changed *HostKeyChangedError
	var auth *AuthError
	if errors.As(err, &unknown) || errors.As(err, &changed) || errors.As(err, &auth) {
		return err // an error of the jump host that a retry does not solve
	}
	if clock.struck() {
		err = fmt.Errorf("no answer within %v: %w", clock.limit, err)
	}
	return &UnreachableError{Node: cfg.Node, Addr: cfg.Addr(), Err: err}
}

// loginError returns the error for a failed handshake or login.
func loginError(ctx context.Context, cfg Config, clock *clock, hosts *hostKeys, id *identities, err error) error {
	var negotiation *ssh.AlgorithmNegotiationError
	switch {
	case ctx.Err() != nil:
		return failure.On(cfg.Node, fmt.Errorf("log in to %s: %w", cfg.Addr(), context.Cause(ctx)))
	case hosts.err != nil:
		return hosts.err
	case clock.struck():
		return &UnreachableError{Node: cfg.Node, Addr: cfg.Addr(),
			Err: fmt.Errorf("it accepts connections, but there was no SSH login within %v", clock.limit)}
	case hosts.accepted && id.signErr != nil:
		return &AuthError{Node: cfg.Node, Addr: cfg.Addr(), User: cfg.User, Tried: id.tried, Err: id.signErr}
	case hosts.accepted && refused(err):
		return &AuthError{Node: cfg.Node, Addr: cfg.Addr(), User: cfg.User, Tried: id.tried, Err: err}
	case errors.As(err, &negotiation):
		return failure.On(cfg.Node, fmt.Errorf("%s and nixbench have no %s algorithm in common (it offers %s): %w",
			cfg.Addr(), negotiation.What, strings.Join(negotiation.SupportedAlgorithms, ","), err))
	}
	return &UnreachableError{Node: cfg.Node, Addr: cfg.Addr(), Err: err}
}

// refused reports whether err is a refused login, and not a broken connection. The library has no
// type for it.
func refused(err error) bool {
	text := err.Error()
	return slices.ContainsFunc([]string{"unable to authenticate", "authentication failures", "authentication attempts"},
		func(s string) bool { return strings.Contains(text, s) })
}

// clock cancels a context after a while, and can be paused.
type clock struct {
	limit  time.Duration
	cancel context.CancelFunc
	late   atomic.Bool

	mu     sync.Mutex
	timer  *time.Timer
	paused int
}

func startClock(ctx context.Context, limit time.Duration) (context.Context, *clock) {
	ctx, cancel := context.WithCancel(ctx)
	c := &clock{limit: limit, cancel: cancel}
	c.timer = time.AfterFunc(limit, func() {
		c.late.Store(true)
		cancel()
	})
	return ctx, c
}

// pause stops the clock; the returned function restarts it.
func (c *clock) pause() (resume func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused++; c.paused == 1 {
		c.timer.Stop()
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.paused--; c.paused == 0 {
			c.timer.Reset(c.limit)
		}
	}
}

func (c *clock) struck() bool { return c.late.Load() }

func (c *clock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer.Stop()
	c.cancel()
}

// trackedConn records when data was last received. A server that is sending data is alive, even if
// its answer to a keepalive is queued behind the data.
type trackedConn struct {
	net.Conn
	last atomic.Int64
}

func (t *trackedConn) touch() { t.last.Store(time.Now().UnixNano()) }

func (t *trackedConn) quiet() time.Duration {
	return time.Duration(time.Now().UnixNano() - t.last.Load())
}

func (t *trackedConn) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	if n > 0 {
		t.touch()
	}
	return n, err
}
