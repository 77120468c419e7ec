package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote/hostkeys"
	"github.com/nixbench/nixbench/deploy/remote/identity"
	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
)

// Prompt asks the user for a secret. The caller may overwrite the returned bytes.
type Prompt func(ctx context.Context, question string) ([]byte, error)

// Options are settings that all nodes of a run share.
type Options struct {
	// AcceptNewHostKeys says that the keys of unknown hosts are accepted and added to known_hosts. A changed key is still refused.
	AcceptNewHostKeys bool

	// Prompt asks for sudo passwords. Nil: no prompts.
	Prompt Prompt

	// KnownHosts caches known_hosts files for other nodes. If it is nil, each connection has a KnownHosts of its own.
	KnownHosts *hostkeys.KnownHosts

	// Down asks the hypervisor for the state of the node's machine, and returns it if the machine does not run, such as
	// "off". It returns "" if the machine runs, or if its state is unknown. Down may be nil.
	Down func(ctx context.Context, node string) string

	// Send receives an event when nixbench waits for a connection. Send may be nil.
	Send event.Sink

	// DialContext opens the TCP connection. Nil: net.Dialer.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)

	host  context.Context // of a Host: ends the connection; nil for other connections
	sudo  *sudoPassword   // shared by all connections of a Host
	brief bool            // the call is [Host.TryConn]
	limit time.Duration   // of opening the TCP connection; 0: only ConnectTimeout
}

// Dial opens one SSH connection and logs in. If cfg.Local is set, the node is this machine, and Dial does neither.
func Dial(ctx context.Context, cfg sshconfig.Config, opts Options) (*Conn, error) {
	if cfg.Local {
		return newConn(cfg, opts, newLocalTransport()), nil
	}
	hosts, err := hostkeys.NewChecker(cfg, opts.AcceptNewHostKeys || cfg.AcceptNew, cmp.Or(opts.KnownHosts, &hostkeys.KnownHosts{}))
	if err != nil {
		return nil, err
	}

	// The time limit covers connecting and logging in, and is paused during signatures.
	// Some transports do not support deadlines, so the clock cancels a context when the limit
	// expires, and the cancellation closes the connection.
	clock := startClock(ctx, cmp.Or(cfg.ConnectTimeout, longTimeout))
	defer clock.cancel(nil)
	defer clock.timer.Stop()

	id, closeAgent := identity.Load(ctx, cfg, clock.pause)
	defer closeAgent()

	raw, err := openTransport(clock.ctx, cfg, opts)
	if err != nil {
		return nil, explainFailure(ctx, cfg, clock, hosts, id, stepConnect, err)
	}
	tracked := &trackedConn{Conn: raw}
	tracked.recordData()
	client, err := handshake(clock.ctx, tracked, cfg, hosts, id)
	if err != nil {
		raw.Close()
		return nil, explainFailure(ctx, cfg, clock, hosts, id, stepLogIn, err)
	}
	conn := newConn(cfg, opts, sshTransport{client})
	conn.closed.Go(func() { conn.sendKeepAlives(tracked) })
	return conn, nil
}

// handshake exchanges keys with the server, checks the host key and logs in.
func handshake(ctx context.Context, conn net.Conn, cfg sshconfig.Config, hosts *hostkeys.Checker, id *identity.Login) (*ssh.Client, error) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	var banner string // the last text of the server, such as PAM's reason for a refusal
	c, channels, requests, err := ssh.NewClientConn(conn, cfg.Addr(), &ssh.ClientConfig{
		User:              cfg.User,
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(id.Signers...)},
		HostKeyCallback:   hosts.Check,
		HostKeyAlgorithms: hosts.Algorithms(),
		ClientVersion:     "SSH-2.0-nixbench",
		BannerCallback:    func(text string) error { banner = text; return nil },
	})
	if err != nil && banner != "" {
		err = fmt.Errorf("%w (the server says: %s)", err, quoteText(banner))
	}
	if err != nil {
		return nil, err
	}
	if !stop() { // the time limit expired at the end of the handshake, so the connection is already closed
		c.Close()
		return nil, context.Cause(ctx)
	}
	return ssh.NewClient(c, channels, requests), nil
}

// The steps of Dial, for errors.
const (
	stepConnect = "connect to"
	stepLogIn   = "log in to"
)

func explainFailure(ctx context.Context, cfg sshconfig.Config, clock *loginClock, hosts *hostkeys.Checker, id *identity.Login, step string, err error) error {
	switch {
	case ctx.Err() != nil:
		return failure.On(cfg.Node, fmt.Errorf("%s %s: %w", step, cfg.Addr(), context.Cause(ctx)))
	case hosts.Err != nil:
		return hosts.Err
	case clock.hasExpired() && step == stepConnect:
		err = fmt.Errorf("no answer within %v: %w", clock.limit, err)
	case clock.hasExpired():
		err = fmt.Errorf("it accepts connections, but there was no SSH login within %v", clock.limit)
	case hosts.Accepted && (id.SignErr != nil || isRefusedLogin(err)):
		err = cmp.Or(id.SignErr, err)
		return &AuthError{failure.About{Node: cfg.Node, Err: err,
			Text: fmt.Sprintf("%s refuses to log in %s: tried %s; add one of these keys to the user's authorized keys, or name another with deployment.sshOptions: %v",
				cfg.Addr(), cfg.User, cmp.Or(strings.Join(id.Tried, ", "), "nothing"), err)}}
	}
	unreachable := NewUnreachableError(cfg.Node, cfg.Addr(), "", err)
	unreachable.Silent = silentReason(cfg, clock, step, err)
	return unreachable
}

// proxySilentRE matches why a proxy command, such as ssh to a jump host, has reached nothing.
var proxySilentRE = regexp.MustCompile(`(?i)no route to host|connection refused|(connection|operation) timed out|host is down|network is unreachable|no such host|name or service not known`)

// silentErrors are the errors of a connection to an address at which nothing answers. Other errors are faults of this computer.
var silentErrors = []syscall.Errno{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.ETIMEDOUT}

// silentReason returns the value of [UnreachableError.Silent]. A connection through a proxy exists before the node answers.
func silentReason(cfg sshconfig.Config, clock *loginClock, step string, err error) string {
	lookup, errno := (*net.DNSError)(nil), syscall.Errno(0)
	switch {
	case errors.As(err, &lookup) && !lookup.IsNotFound:
		return "" // the DNS does not answer
	case clock.hasExpired() && (isProxied(cfg) || step == stepConnect):
		return fmt.Sprintf("no answer within %v", clock.limit)
	case isProxied(cfg):
		return strings.ToLower(proxySilentRE.FindString(err.Error()))
	case lookup != nil:
		return lookup.Err
	case step == stepConnect && errors.As(err, &errno) && slices.Contains(silentErrors, errno):
		return errno.Error()
	}
	return ""
}

// isRefusedLogin reports whether err is a refused login, and not a broken connection. It compares
// texts, because x/crypto has no error type for a refused login.
func isRefusedLogin(err error) bool {
	text := err.Error()
	return slices.ContainsFunc([]string{"unable to authenticate", "authentication failures", "authentication attempts"},
		func(s string) bool { return strings.Contains(text, s) })
}

type loginClock struct {
	limit  time.Duration
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

var errLoginTimeout = errors.New("the time limit of the login has expired")

func startClock(ctx context.Context, limit time.Duration) *loginClock {
	ctx, cancel := context.WithCancelCause(ctx)
	return &loginClock{limit, ctx, cancel, time.AfterFunc(limit, func() { cancel(errLoginTimeout) })}
}

// pause stops the clock; the returned function restarts it with the full limit.
func (c *loginClock) pause() (resume func()) {
	c.timer.Stop()
	return func() { c.timer.Reset(c.limit) }
}

func (c *loginClock) hasExpired() bool { return context.Cause(c.ctx) == errLoginTimeout }

// trackedConn records when data was last received. A server that sends data is not considered lost,
// even if its answer to a keepalive is queued behind the data.
type trackedConn struct {
	net.Conn
	last atomic.Int64 // time of the last received data, in nanoseconds since 1970
}

func (t *trackedConn) recordData() { t.last.Store(time.Now().UnixNano()) }

func (t *trackedConn) sinceLastData() time.Duration {
	return time.Duration(time.Now().UnixNano() - t.last.Load())
}

func (t *trackedConn) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	if n > 0 {
		t.recordData()
	}
	return n, err
}
