package remote

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
)

// openTransport opens the byte stream to the host: directly, through a jump host, or through a proxy command.
func openTransport(ctx context.Context, cfg sshconfig.Config, opts Options) (net.Conn, error) {
	switch {
	case len(cfg.Jump) > 0:
		argv := []string{"ssh", "-W", cfg.Addr(), "-o", "BatchMode=yes"}
		if opts.AcceptNewHostKeys {
			argv = append(argv, "-o", "StrictHostKeyChecking=accept-new")
		}
		return startProxy(cfg, Cmd{Argv: append(argv, cfg.Jump...), Name: "ssh to the jump host " + cfg.Jump[len(cfg.Jump)-1]}), nil
	case cfg.ProxyCommand != "":
		return startProxy(cfg, Cmd{Argv: []string{"sh", "-c", "exec " + cfg.ProxyCommand}, Name: "the proxy command"}), nil
	}
	if opts.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, opts.limit)
		defer cancel()
	}
	if opts.DialContext != nil {
		return opts.DialContext(ctx, cfg.Network, cfg.Addr())
	}
	return (&net.Dialer{}).DialContext(ctx, cfg.Network, cfg.Addr())
}

// isProxied reports whether a jump host or a proxy command connects to the node.
func isProxied(cfg sshconfig.Config) bool { return len(cfg.Jump) > 0 || cfg.ProxyCommand != "" }

// proxyConn is a connection to stdin and stdout of a proxy command. The command runs on this machine.
type proxyConn struct {
	io.ReadWriteCloser
	local *Conn
}

func startProxy(cfg sshconfig.Config, cmd Cmd) net.Conn {
	local := newConn(sshconfig.Config{Node: cfg.Node, Local: true}, Options{}, newLocalTransport())
	return proxyConn{local.DialCommand(cmd), local}
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

// The address has the form of a TCP address, because the library that reads known_hosts parses it.
func (p proxyConn) LocalAddr() net.Addr  { return &net.TCPAddr{} }
func (p proxyConn) RemoteAddr() net.Addr { return &net.TCPAddr{} }
