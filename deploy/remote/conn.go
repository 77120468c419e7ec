package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/failure"
)

// maxSessions is how many commands run at once on one connection. sshd's own
// limit is 10 by default; the rest is kept for ending cancelled commands.
const maxSessions = 8

// Conn is one SSH connection. It carries any number of commands and forwarded
// sockets at the same time, and all its methods may be used at the same time.
type Conn struct {
	cfg    Config
	opts   Options
	client *ssh.Client
	via    *Conn // the jump host, used by this connection only
	sudo   *sudoPassword

	slots chan struct{} // taken by running commands

	done   chan struct{}
	once   sync.Once
	err    error // why the connection ended; read it after done
	closed sync.WaitGroup
}

func newConn(cfg Config, opts Options, client *ssh.Client, tracked *trackedConn, via *Conn) *Conn {
	c := &Conn{
		cfg: cfg, opts: opts, client: client, via: via, sudo: opts.sudo,
		slots: make(chan struct{}, maxSessions),
		done:  make(chan struct{}),
	}
	if c.sudo == nil {
		c.sudo = &sudoPassword{}
	}
	c.closed.Go(func() {
		err := client.Wait()
		c.end(c.lost(fmt.Errorf("the server closed it: %w", err)))
	})
	c.closed.Go(func() { c.keepAlive(tracked) })
	return c
}

// Node is the name of the node, for messages.
func (c *Conn) Node() string { return c.cfg.Node }

// User is the login user.
func (c *Conn) User() string { return c.cfg.User }

// Done is closed when the connection has ended. Err then returns the reason.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err is nil while the connection is open, ErrClosed after Close, and a
// *LostError if it broke.
func (c *Conn) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Close ends the connection with its commands and forwarded sockets.
func (c *Conn) Close() error {
	c.end(ErrClosed)
	c.closed.Wait()
	return nil
}

// end closes the connection for a reason; the first one counts.
func (c *Conn) end(reason error) {
	c.once.Do(func() {
		c.err = reason
		close(c.done)
		if c.opts.sudo == nil {
			c.sudo.forget()
		}
		// The jump host first: closing a channel of a frozen connection
		// would wait for it.
		if c.via != nil {
			c.via.end(ErrClosed)
		}
		c.client.Close()
	})
}

func (c *Conn) lost(err error) error {
	return &LostError{Node: c.cfg.Node, Addr: c.cfg.Addr(), Err: err}
}

// explain replaces an operation's error, such as "EOF", by the reason why the connection ended, if
// it did.
func (c *Conn) explain(err error) error {
	var refused *ssh.OpenChannelError
	if err == nil || errors.As(err, &refused) {
		return err
	}
	select {
	case <-c.done:
		return c.err
	case <-time.After(20 * time.Millisecond): // the reason may be set a moment later
	}
	return err
}

// keepAlive sends requests to the server, and ends the connection if it gets no answer and no other data
// for the limit. The server answers requests in order, so only one is open at a time.
func (c *Conn) keepAlive(tracked *trackedConn) {
	interval, limit := c.opts.KeepAliveInterval, time.Duration(c.opts.KeepAliveMax)*c.opts.KeepAliveInterval
	tick := time.NewTicker(interval)
	defer tick.Stop()
	answered := make(chan struct{}, 1)
	asked := time.Time{} // when the open request was sent
	for {
		select {
		case <-c.done:
			return
		case <-answered:
			asked = time.Time{}
		case <-tick.C:
			if asked.IsZero() {
				asked = time.Now()
				go func() {
					// Sending may block too, if the network drops packets.
					if _, _, err := c.client.SendRequest("keepalive@openssh.com", true, nil); err == nil {
						answered <- struct{}{}
					}
				}()
				continue
			}
			if time.Since(asked) >= limit && tracked.quiet() >= limit {
				c.end(c.lost(fmt.Errorf("no data for %v (%d keepalives unanswered)", limit, c.opts.KeepAliveMax)))
				return
			}
		}
	}
}

// session opens a channel for a command. If the server allows fewer channels than maxSessions,
// session tries again later.
func (c *Conn) session(ctx context.Context) (*ssh.Session, error) {
	for wait, tries := 20*time.Millisecond, 0; ; wait, tries = min(2*wait, time.Second), tries+1 {
		s, err := c.openSession(ctx)
		var refused *ssh.OpenChannelError
		if !errors.As(err, &refused) {
			return s, err
		}
		if tries >= 3 && len(c.slots) <= 1 {
			return nil, failure.On(c.cfg.Node, fmt.Errorf("%s refuses to open a session: %w", c.cfg.Addr(), err))
		}
		if err := c.sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

func (c *Conn) openSession(ctx context.Context) (*ssh.Session, error) {
	type opened struct {
		session *ssh.Session
		err     error
	}
	ready := make(chan opened, 1)
	go func() {
		s, err := c.client.NewSession()
		ready <- opened{s, err}
	}()
	select {
	case o := <-ready:
		return o.session, c.explain(o.err)
	case <-c.done:
		return nil, c.err
	case <-ctx.Done():
		go func() {
			if o := <-ready; o.session != nil {
				o.session.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

func (c *Conn) sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
