package remote

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/nixbench/nixbench/deploy/failure"
)

// Loopback returns a Host for the local machine. Commands run as the current user, and sockets are
// local. The Host uses an SSH connection to a server inside this process, so it behaves like a remote
// node and needs no sshd.
func Loopback(node string, escalation []string, opts Options) (*Host, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	key, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return nil, err
	}
	me, err := user.Current()
	if err != nil {
		return nil, failure.On(node, fmt.Errorf("look up the current user: %w", err))
	}
	config := &ssh.ServerConfig{NoClientAuth: true} // the connection is private to this process
	config.AddHostKey(key)
	opts.DialContext = func(context.Context, string, string) (net.Conn, error) {
		here, there, err := socketPair()
		if err != nil {
			return nil, err
		}
		go serveLoopback(there, config)
		return here, nil
	}
	return NewHost(Config{
		Node: node, Alias: node, HostName: "localhost", Port: 22, User: me.Username, Network: "tcp",
		HostKeys: []ssh.PublicKey{key.PublicKey()}, IdentitiesOnly: true, Escalation: escalation,
	}, opts), nil
}

// socketPair returns the two ends of a connection. net.Pipe cannot be used, because it has no buffer:
// client and server of SSH both write first, and would block.
func socketPair() (net.Conn, net.Conn, error) {
	syscall.ForkLock.RLock() // no program is started before both ends are close-on-exec: macOS has no SOCK_CLOEXEC
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	var ends [2]net.Conn
	var errs [2]error
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "loopback")
		ends[i], errs[i] = net.FileConn(f)
		f.Close() // FileConn has duplicated it
	}
	return ends[0], ends[1], errors.Join(errs[0], errs[1])
}

// serveLoopback serves one SSH connection. When the connection ends, it ends the connection's commands
// and forwarded sockets.
func serveLoopback(conn net.Conn, config *ssh.ServerConfig) {
	defer conn.Close()
	_, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return // the client reports the error
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		for r := range requests {
			_ = r.Reply(false, nil) // the client's keepalives accept any answer
		}
	}()
	for channel := range channels {
		switch channel.ChannelType() {
		case "session":
			go serveLoopbackSession(ctx, channel)
		case "direct-streamlocal@openssh.com":
			go forwardLoopback(ctx, channel)
		default:
			_ = channel.Reject(ssh.UnknownChannelType, channel.ChannelType())
		}
	}
}

// serveLoopbackSession runs the command of a session. When the session ends, it kills the command's
// process group. Requests for signals are not supported, since a cancelled command is also ended by
// another command (runningCommand.stopProcesses).
func serveLoopbackSession(ctx context.Context, offered ssh.NewChannel) {
	channel, requests, err := offered.Accept()
	if err != nil {
		return
	}
	defer channel.Close()
	for r := range requests {
		var body struct{ Line string }
		if r.Type != "exec" || ssh.Unmarshal(r.Payload, &body) != nil {
			_ = r.Reply(false, nil)
			continue
		}
		_ = r.Reply(true, nil)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() { // until the client closes the session
			for r := range requests {
				_ = r.Reply(false, nil)
			}
			cancel()
		}()
		name, payload := runLoopbackCommand(ctx, body.Line, channel)
		_ = channel.CloseWrite()
		_, _ = channel.SendRequest(name, false, payload)
		return
	}
}

// runLoopbackCommand runs a line with sh, as sshd does. It returns the type and the payload of the SSH
// request that reports the exit status or signal.
func runLoopbackCommand(ctx context.Context, line string, channel ssh.Channel) (request string, payload []byte) {
	status := func(code int) (string, []byte) {
		return "exit-status", ssh.Marshal(struct{ Status uint32 }{uint32(code)})
	}
	cmd := exec.Command("sh", "-c", line)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
	stdin, err := cmd.StdinPipe() // with cmd.Stdin, Wait would wait for the end of the channel
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(channel.Stderr(), err)
		return status(126)
	}
	go func() {
		_, _ = io.Copy(stdin, channel)
		_ = stdin.Close()
	}()
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer stop()
	_ = cmd.Wait() // ProcessState has the status
	ended := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ended.Signaled() {
		died := struct {
			Signal     string
			CoreDumped bool
			Message    string
			Language   string
		}{Signal: strings.TrimPrefix(unix.SignalName(ended.Signal()), "SIG")}
		return "exit-signal", ssh.Marshal(died)
	}
	return status(ended.ExitStatus())
}

// forwardLoopback connects a channel to a unix socket of this machine.
func forwardLoopback(ctx context.Context, offered ssh.NewChannel) {
	var body struct {
		Path, Reserved0 string
		Reserved1       uint32
	}
	if ssh.Unmarshal(offered.ExtraData(), &body) != nil {
		_ = offered.Reject(ssh.ConnectionFailed, "open failed")
		return
	}
	far, err := net.Dial("unix", body.Path)
	if err != nil {
		_ = offered.Reject(ssh.ConnectionFailed, "open failed")
		return
	}
	defer far.Close()
	channel, requests, err := offered.Accept()
	if err != nil {
		return
	}
	defer channel.Close()
	go ssh.DiscardRequests(requests)
	stop := context.AfterFunc(ctx, func() { far.Close() })
	defer stop()
	var work sync.WaitGroup
	work.Go(func() {
		_, _ = io.Copy(far, channel)
		_ = far.(*net.UnixConn).CloseWrite()
	})
	work.Go(func() {
		_, _ = io.Copy(channel, far)
		_ = channel.CloseWrite()
	})
	work.Wait()
}
