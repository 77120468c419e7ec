package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/failure"
)

// DialUnix connects to a unix socket on the node. The returned connection supports no deadlines. Close ends pending
// writes at once and pending reads within a second, even if the network drops all packets. A write that Close has ended
// may still read its data, so the caller must not change the data. The connection has a CloseWrite method.
func (c *Conn) DialUnix(ctx context.Context, remotePath string) (net.Conn, error) {
	conn, refused, err := c.dialFromNode(ctx, "unix", remotePath)
	if refused {
		err = c.explainRefusedForward(ctx, remotePath, err)
	}
	return conn, err
}

// DialTCP connects from the node to an address, which the node resolves. The connection is like that of DialUnix.
func (c *Conn) DialTCP(ctx context.Context, address string) (net.Conn, error) {
	conn, refused, err := c.dialFromNode(ctx, "tcp", address)
	if refused {
		err = failure.On(c.cfg.Node, fmt.Errorf("connect to %s: %w", address, err))
	}
	return conn, err
}

// dialFromNode connects from the node to an address or socket. refused means that the server has
// refused the connection, so the caller can add the reason.
func (c *Conn) dialFromNode(ctx context.Context, network, address string) (_ net.Conn, refused bool, _ error) {
	type dialed struct {
		conn net.Conn
		err  error
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	ready := make(chan dialed, 1)
	go func() {
		conn, err := c.transport.Dial(network, address)
		ready <- dialed{conn, err}
	}()
	select {
	case d := <-ready:
		if d.err != nil {
			return nil, true, c.explainError(d.err)
		}
		return newChannel(d.conn), false, nil
	case <-c.done:
		return nil, false, c.err
	case <-ctx.Done():
		go func() {
			if d := <-ready; d.conn != nil {
				d.conn.Close()
			}
		}()
		return nil, false, failure.On(c.cfg.Node, fmt.Errorf("connect to %s: %w", address, context.Cause(ctx)))
	}
}

// socketScript prints one word that describes why the user cannot connect to the socket $1.
const socketScript = `if [ ! -e "$1" ]; then echo missing
elif [ ! -S "$1" ]; then echo file
elif [ ! -w "$1" ]; then echo denied
elif [ ! -r /proc/net/unix ]; then echo unknown
else
	while read -r num refs proto flags type state inode path; do
		if [ "$flags" = 00010000 ] && [ "$path" = "$1" ]; then echo listening; exit; fi
	done </proc/net/unix
	echo idle
fi`

// explainRefusedForward returns the error for a refused connection to a socket. sshd sends the same
// answer if forwarding is forbidden and if no process listens, so explainRefusedForward inspects the
// socket with socketScript.
func (c *Conn) explainRefusedForward(ctx context.Context, path string, err error) error {
	fail := func(why error) error {
		return failure.On(c.cfg.Node, fmt.Errorf("connect to socket %s on %s: %w", path, c.cfg.Addr(), why))
	}
	var refused *ssh.OpenChannelError
	if !errors.As(err, &refused) {
		return fail(err)
	}
	if refused.Reason == ssh.Prohibited || refused.Reason == ssh.UnknownChannelType {
		return fail(ErrForwardingProhibited)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	found, lookErr := c.Output(ctx, Cmd{Argv: []string{"sh", "-c", socketScript, "sh", path}})
	if lookErr != nil {
		return fail(err)
	}
	switch strings.TrimSpace(string(found)) {
	case "listening":
		return fail(ErrForwardingProhibited)
	case "missing":
		return fail(fmt.Errorf("no such socket: is its service running? %w", os.ErrNotExist))
	case "denied":
		return fail(fmt.Errorf("%s may not use it: %w", c.cfg.User, os.ErrPermission))
	case "file":
		return fail(errors.New("it is not a socket"))
	case "idle":
		return fail(errors.New("no process listens on it: is its service running?"))
	}
	return fail(err)
}

// maxSocketPath is the maximal length of a socket's path in bytes: the limit of macOS, which is lower
// than that of Linux.
const maxSocketPath = 103

// ForwardUnix listens on a local socket and forwards each connection to a
// socket on the node over this SSH connection. The folder of the local socket is
// created with mode 0700; an existing folder must not be open to other users, since
// the node's Nix daemon trusts any client of the socket like root.
//
// ctx limits the setup only; the forward exists until it is closed or the
// connection ends. ForwardUnix connects to the node's socket once, so that an
// unusable socket is an error of ForwardUnix.
func (c *Conn) ForwardUnix(ctx context.Context, localPath, remotePath string) (io.Closer, error) {
	fail := func(err error) (io.Closer, error) {
		return nil, failure.On(c.cfg.Node, fmt.Errorf("forward socket %s: %w", localPath, err))
	}
	if len(localPath) > maxSocketPath {
		return fail(fmt.Errorf("the path has %d bytes, more than the %d that a socket may have", len(localPath), maxSocketPath))
	}
	dir := filepath.Dir(localPath)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fail(err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fail(fmt.Errorf("the folder %s is open to others (mode %04o, want 0700)", dir, info.Mode().Perm()))
	}
	probe, err := c.DialUnix(ctx, remotePath)
	if err != nil {
		return nil, err
	}
	probe.Close()
	if err := removeSocket(localPath); err != nil {
		return fail(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", localPath)
	if err != nil {
		return fail(err)
	}
	return c.forward(listener, func(ctx context.Context) (net.Conn, error) { return c.DialUnix(ctx, remotePath) }), nil
}

// ForwardTCP forwards connections of a listener to an address, which the node resolves. It closes the
// listener when the SSH connection ends or the returned Closer is closed.
func (c *Conn) ForwardTCP(listener net.Listener, address string) io.Closer {
	return c.forward(listener, func(ctx context.Context) (net.Conn, error) { return c.DialTCP(ctx, address) })
}

func (c *Conn) forward(listener net.Listener, dial func(context.Context) (net.Conn, error)) *forward {
	f := &forward{conn: c, listener: listener, dial: dial, open: map[net.Conn]bool{}, closed: make(chan struct{})}
	f.work.Go(f.acceptConns)
	f.work.Go(func() {
		select {
		case <-c.done:
			f.closeAll()
		case <-f.closed:
		}
	})
	return f
}

// removeSocket removes a socket that a killed run has not removed. It returns an error if the path is
// another type of file.
func removeSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil && info.Mode().Type() != os.ModeSocket {
		err = errors.New("it exists and is not a socket")
	}
	if err != nil {
		return err
	}
	return os.Remove(path)
}

// forward is a local listener whose connections are forwarded to a socket of the node, or to an
// address that the node can reach.
type forward struct {
	conn     *Conn
	listener net.Listener
	dial     func(context.Context) (net.Conn, error)
	work     sync.WaitGroup
	once     sync.Once
	closed   chan struct{}

	mu   sync.Mutex
	open map[net.Conn]bool
}

// Close stops listening, removes the socket and closes the open connections.
func (f *forward) Close() error {
	err := f.closeAll()
	f.work.Wait()
	return err
}

// closeAll closes the listener and all open connections. It does not wait for their goroutines.
func (f *forward) closeAll() (err error) {
	f.once.Do(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		close(f.closed)
		err = f.listener.Close()
		for conn := range f.open {
			conn.Close()
		}
	})
	return err
}

// registerConn adds an open connection, so that closeAll closes it. After closeAll it closes the
// connection and returns false.
func (f *forward) registerConn(conn net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.closed:
		conn.Close()
		return false
	default:
		f.open[conn] = true
		return true
	}
}

// closeConn closes a registered connection.
func (f *forward) closeConn(conn net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, conn)
	conn.Close()
}

func (f *forward) acceptConns() {
	for {
		local, err := f.listener.Accept()
		if err != nil {
			return
		}
		if f.registerConn(local) {
			f.work.Go(func() { f.serveConn(local) })
		}
	}
}

func (f *forward) serveConn(local net.Conn) {
	defer f.closeConn(local)
	far, err := f.dial(context.Background())
	if err != nil || !f.registerConn(far) {
		return
	}
	defer f.closeConn(far)
	copyBothWays(local, far)
}

// copyBothWays copies data between two connections until both directions have ended. The end of one
// direction does not end the other one: the Nix daemon still answers after its client has finished
// sending.
func copyBothWays(a, b net.Conn) {
	var work sync.WaitGroup
	one := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
			half.CloseWrite()
			return
		}
		// An error in one direction ends both.
		a.Close()
		b.Close()
	}
	work.Go(func() { one(a, b) })
	work.Go(func() { one(b, a) })
	work.Wait()
}
