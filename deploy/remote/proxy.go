package remote

import (
	"context"
	"errors"
	"net"

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

// proxyConn is a connection to stdin and stdout of a proxy command. The command runs on this machine. The connection has no deadlines:
// when the time limit expires, Dial closes it instead.
type proxyConn struct {
	net.Conn
	local *Conn
}

func startProxy(cfg sshconfig.Config, cmd Cmd) net.Conn {
	cmd.Unlimited = true
	local := newConn(sshconfig.Config{Node: cfg.Node, Local: true}, Options{}, newLocalTransport())
	return proxyConn{local.DialCommand(context.Background(), cmd), local}
}

// Read reads from the proxy command. It removes the name of the node from an error, because the error of the connection
// already contains the name.
func (p proxyConn) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	if failed := (*RunError)(nil); errors.As(err, &failed) {
		err = errors.New(failed.Text)
	}
	return n, err
}

// Close ends the proxy command.
func (p proxyConn) Close() error { return p.local.Close() }
