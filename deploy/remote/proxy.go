package remote

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
)

// openTransport opens the byte stream to the host: directly, through a jump host, or through a proxy command. The *Conn is the
// connection to the jump host, or nil. opts are the options without defaults, because the configuration of the jump host may set
// other time limits.
func openTransport(clock *loginClock, cfg sshconfig.Config, opts Options) (net.Conn, *Conn, error) {
	ctx := clock.ctx
	switch {
	case cfg.Via != nil:
		resume := clock.pause() // the time limit is only for the login at the node itself
		opts.host, opts.sudo = nil, nil
		via, err := Dial(ctx, *cfg.Via, opts)
		resume()
		if err != nil {
			return nil, nil, fmt.Errorf("jump host %s: %w", cfg.Via.Alias, err)
		}
		conn, err := via.transport.(sshTransport).DialContext(ctx, "tcp", cfg.Addr())
		if err != nil {
			err = via.explainError(err)
			via.Close()
			return nil, nil, fmt.Errorf("through jump host %s: %w", cfg.Via.Alias, err)
		}
		return conn, via, nil
	case cfg.ProxyCommand != "":
		return startProxy(cfg), nil, nil
	}
	conn, err := opts.DialContext(ctx, cfg.Network, cfg.Addr())
	return conn, nil, err
}

// proxyConn is a connection to stdin and stdout of a proxy command. The command runs on this machine.
type proxyConn struct {
	io.ReadWriteCloser
	local *Conn
}

func startProxy(cfg sshconfig.Config) net.Conn {
	here := sshconfig.Config{Node: cfg.Node, Local: true}
	local := newConn(here, Options{}.withDefaults(here), newLocalTransport(), nil)
	return proxyConn{local.DialCommand(Cmd{Argv: []string{"sh", "-c", "exec " + cfg.ProxyCommand}, Name: "the proxy command"}), local}
}

// Read reads from the proxy command. It removes the name of the node from an error, because the error of the connection
// already contains the name.
func (p proxyConn) Read(b []byte) (int, error) {
	n, err := p.ReadWriteCloser.Read(b)
	if failed := (*RunError)(nil); errors.As(err, &failed) {
		err = errors.New(failed.Text)
	}
	return n, err
}

// Close ends the proxy command.
func (p proxyConn) Close() error { return p.local.Close() }

// A proxyConn has no deadlines. When the time limit expires, Dial closes the connection instead.
func (p proxyConn) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (p proxyConn) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (p proxyConn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }
func (p proxyConn) LocalAddr() net.Addr              { return proxyAddr{} }
func (p proxyConn) RemoteAddr() net.Addr             { return proxyAddr{} }

// proxyAddr is the address of a proxyConn. It has the form of a TCP address, because the known_hosts library parses it.
type proxyAddr struct{}

func (proxyAddr) Network() string { return "tcp" }
func (proxyAddr) String() string  { return "0.0.0.0:0" }
