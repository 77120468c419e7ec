package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
)

// maxSessions is the maximal number of commands that run at the same time on one connection. sshd's default limit is 10
// sessions. Two of these sessions are reserved for ending cancelled commands.
const maxSessions = 8

// Conn is one SSH connection. It supports several commands and forwarded sockets at the same time,
// and its methods may be called concurrently.
type Conn struct {
	cfg       sshconfig.Config
	opts      Options
	transport transport
	sudo      *sudoPassword

	slots chan struct{} // each running command takes a slot

	ctx    context.Context         // ends when the connection ends; its cause is the reason for the end
	end    context.CancelCauseFunc // closes the connection; its first argument is the reason for Err
	closed sync.WaitGroup
}

func newConn(cfg sshconfig.Config, opts Options, t transport) *Conn {
	c := &Conn{
		cfg: cfg, opts: opts, transport: t, sudo: opts.sudo,
		slots: make(chan struct{}, maxSessions),
	}
	if opts.host == nil {
		opts.host = context.Background()
	}
	c.ctx, c.end = context.WithCancelCause(opts.host)
	if c.sudo == nil {
		c.sudo = &sudoPassword{}
		context.AfterFunc(c.ctx, c.sudo.forget)
	}
	context.AfterFunc(c.ctx, func() { t.Close() })
	c.closed.Go(func() {
		err := t.Wait()
		c.end(c.newLostError(fmt.Errorf("the server closed it: %w", err)))
	})
	return c
}

func (c *Conn) User() string { return c.cfg.User }

// Context returns a context that ends when the connection has ended. After that, Err returns the reason.
func (c *Conn) Context() context.Context { return c.ctx }

// Err returns nil while the connection is open, ErrClosed after Close, and a *LostError if the
// connection was lost.
func (c *Conn) Err() error { return context.Cause(c.ctx) }

// Close ends the connection, its commands and its forwarded sockets.
func (c *Conn) Close() error {
	c.end(ErrClosed)
	c.closed.Wait()
	return nil
}

func (c *Conn) newLostError(err error) error {
	return &LostError{failure.About{Node: c.cfg.Node, Text: fmt.Sprintf("lost the connection to %s: %v", c.cfg.Addr(), err), Err: err}}
}

// explainError returns the reason why the connection ended, if it has ended, and otherwise err. Operations on a lost
// connection fail with "EOF", and this text does not help the user. A connection to this machine is not lost.
func (c *Conn) explainError(err error) error {
	if err == nil || c.cfg.Local || errors.As(err, new(*ssh.OpenChannelError)) {
		return err
	}
	select {
	case <-c.ctx.Done():
		return c.Err()
	case <-time.After(time.Second): // on a busy computer, end runs some time after the operation fails
	}
	return err
}

// sendKeepAlives sends keepalive requests, and ends the connection if the server sends neither an
// answer nor other data for as many intervals as the user allows, or if it does not answer and the hypervisor reports that the
// machine does not run.
// The server answers requests in order, so only one request is open at a time.
func (c *Conn) sendKeepAlives(tracked *trackedConn) {
	interval, most := cmp.Or(c.cfg.KeepAliveInterval, 15*time.Second), cmp.Or(c.cfg.KeepAliveMax, 3)
	limit := time.Duration(most) * interval
	if c.opts.Down != nil {
		interval = min(interval, askAfter)
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	answered := make(chan struct{}, 1)
	asked := time.Time{} // when the open request was sent
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-answered:
			asked = time.Time{}
		case <-tick.C:
			if asked.IsZero() {
				asked = time.Now()
				go func() {
					// Send in a goroutine, because also sending may block if the network drops packets.
					if err := c.transport.ping(); err == nil {
						answered <- struct{}{}
					}
				}()
				continue
			}
			if time.Since(asked) >= limit && tracked.sinceLastData() >= limit {
				c.end(c.newLostError(fmt.Errorf("no data for %v (%d keepalives unanswered)", limit, most)))
				return
			}
			if tracked.sinceLastData() < interval || c.opts.Down == nil {
				continue
			}
			if down := c.opts.Down(c.ctx, c.cfg.Node); down != "" {
				c.end(c.newLostError(errors.New("its machine is " + down)))
				return
			}
		}
	}
}

// openSession opens a session for a command. The output of the command is written to stdout and stderr. If the server refuses the
// session because it allows fewer sessions than maxSessions, openSession tries again while other commands run.
func (c *Conn) openSession(ctx context.Context, stdout, stderr io.Writer) (session, error) {
	for wait, tries := 20*time.Millisecond, 0; ; wait, tries = min(2*wait, time.Second), tries+1 {
		s, err := await(ctx, c, func() (session, error) { return c.transport.newSession(stdout, stderr) })
		if !errors.As(err, new(*ssh.OpenChannelError)) {
			return s, err
		}
		if tries >= 3 && len(c.slots) <= 1 {
			return nil, failure.On(c.cfg.Node, fmt.Errorf("%s refuses to open a session: %w", c.cfg.Addr(), err))
		}
		select {
		case <-time.After(wait):
		case <-c.ctx.Done():
			return nil, c.Err()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// await calls an operation that cannot be cancelled. If the connection or ctx ends before the operation, await returns
// an error. When the operation returns later, its result is closed.
func await[T io.Closer](ctx context.Context, c *Conn, operation func() (T, error)) (result T, err error) {
	ready := make(chan struct{})
	var late T
	var failed error
	go func() {
		defer close(ready)
		late, failed = operation()
	}()
	select {
	case <-ready:
		return late, c.explainError(failed)
	case <-c.ctx.Done():
		err = c.Err()
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	go func() {
		if <-ready; failed == nil {
			late.Close()
		}
	}()
	return result, err
}
