package remote

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
)

// openTransport opens the byte stream to the host: directly, through a jump host, or through a proxy
// command. It returns the connection to the jump host too, or nil. asked are the options without
// defaults.
func openTransport(ctx context.Context, clock *loginClock, cfg sshconfig.Config, asked, opts Options) (net.Conn, *Conn, error) {
	switch {
	case cfg.Via != nil:
		via, err := dialJumpHost(ctx, clock, *cfg.Via, asked, opts)
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
		conn, err := startProxy(cfg.ProxyCommand)
		return conn, nil, err
	}
	conn, err := opts.DialContext(ctx, cfg.Network, cfg.Addr())
	return conn, nil, err
}

// dialJumpHost connects to a jump host, while the clock of the node is paused. asked has no defaults:
// the time limit of a jump host may be a setting of its own configuration.
func dialJumpHost(ctx context.Context, clock *loginClock, via sshconfig.Config, asked, opts Options) (*Conn, error) {
	defer clock.pause()()
	asked.DialContext, asked.Keyring, asked.KnownHosts, asked.sudo = opts.DialContext, opts.Keyring, opts.KnownHosts, nil
	return Dial(ctx, via, asked)
}

// proxyConn is a connection that uses stdin and stdout of a local process.
type proxyConn struct {
	io.Reader
	io.WriteCloser
	cmd    *exec.Cmd
	stderr *tailBuffer
	once   sync.Once
	waited chan struct{}
}

func startProxy(command string) (net.Conn, error) {
	p := &proxyConn{cmd: exec.Command("sh", "-c", "exec "+command), stderr: newTail(2 << 10), waited: make(chan struct{})}
	p.cmd.Stderr = p.stderr
	p.cmd.WaitDelay = time.Second
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // to end its children too
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// Use a pipe of our own and not StdoutPipe, which Wait would close before all data is read.
	stdout, stdoutW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout = stdoutW
	err = p.cmd.Start()
	stdoutW.Close()
	if err != nil {
		stdout.Close()
		return nil, fmt.Errorf("start the proxy command: %w", err)
	}
	p.Reader, p.WriteCloser = stdout, stdin
	go func() {
		defer close(p.waited)
		p.cmd.Wait()
	}()
	return p, nil
}

// Close ends the process and its process group.
func (p *proxyConn) Close() error {
	p.once.Do(func() {
		p.WriteCloser.Close()
		syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM)
		go func() {
			select {
			case <-p.waited:
			case <-time.After(2 * time.Second):
				syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
				<-p.waited
			}
			p.Reader.(*os.File).Close()
		}()
	})
	return nil
}

// stderrText returns the process's stderr, which contains the reason of a failure. It waits 0.2
// seconds at most for the end of the process.
func (p *proxyConn) stderrText() string {
	select {
	case <-p.waited:
	case <-time.After(200 * time.Millisecond):
	}
	return strings.TrimSpace(p.stderr.String())
}

// Deadlines are not supported: Dial closes the connection when its time is over.
func (p *proxyConn) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (p *proxyConn) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (p *proxyConn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }
func (p *proxyConn) LocalAddr() net.Addr              { return proxyAddr{} }
func (p *proxyConn) RemoteAddr() net.Addr             { return proxyAddr{} }

// proxyAddr is the address of a proxyConn. It looks like a TCP address, since the known_hosts library
// parses it.
type proxyAddr struct{}

func (proxyAddr) Network() string { return "tcp" }
func (proxyAddr) String() string  { return "0.0.0.0:0" }
