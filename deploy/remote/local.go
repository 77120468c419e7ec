package remote

import (
	"context"
	"errors"
	"io"
	"net"
	"os/exec"
	"os/user"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
)

// NewLocal returns a Host for this machine. Commands run as the current user, or as root by the escalation command.
func NewLocal(node string, escalation []string, opts Options) (*Host, error) {
	me, err := user.Current()
	if err != nil {
		return nil, failure.On(node, err)
	}
	return NewHost(sshconfig.Config{Node: node, Local: true, User: me.Username, Escalation: escalation}, opts), nil
}

// localTransport runs commands on this machine. Close ends the running commands.
type localTransport struct {
	ctx    context.Context
	cancel context.CancelFunc
}

func newLocalTransport() *localTransport {
	ctx, cancel := context.WithCancel(context.Background())
	return &localTransport{ctx, cancel}
}

func (t *localTransport) Dial(network, addr string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(t.ctx, network, addr)
}

func (t *localTransport) ping() error { return t.ctx.Err() }

func (t *localTransport) Wait() error {
	<-t.ctx.Done()
	return t.ctx.Err()
}

func (t *localTransport) Close() error {
	t.cancel()
	return nil
}

func (t *localTransport) newSession(stdout, stderr io.Writer) (session, error) {
	ctx, end := context.WithCancel(t.ctx)
	s := &localSession{Cmd: exec.CommandContext(ctx, "sh"), end: end} // Start adds the line to execute
	s.Stdout, s.Stderr = stdout, stderr
	s.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // start the command in a session of its own, as sshd does
	s.Cancel = func() error { return syscall.Kill(-s.Process.Pid, syscall.SIGKILL) }
	return s, nil
}

type localSession struct {
	*exec.Cmd
	end context.CancelFunc // ends the command

	mu    sync.Mutex
	group int // the command's process group; 0 unless it runs
}

func (s *localSession) Start(line string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Args = append(s.Args, "-c", line)
	if err := s.Cmd.Start(); err != nil {
		return err
	}
	s.group = s.Process.Pid
	return nil
}

// Wait waits for the command. As with sshd, processes that the command leaves behind are not ended.
func (s *localSession) Wait() error {
	err := s.Cmd.Wait()
	s.mu.Lock()
	s.group = 0
	s.mu.Unlock()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		return err
	}
	ended := s.ProcessState.Sys().(syscall.WaitStatus)
	if ended.Signaled() {
		return &exitError{-1, strings.TrimPrefix(unix.SignalName(ended.Signal()), "SIG")}
	}
	return &exitError{status: ended.ExitStatus()}
}

func (s *localSession) Signal(name ssh.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.group == 0 {
		return nil
	}
	return syscall.Kill(-s.group, unix.SignalNum("SIG"+string(name)))
}

func (s *localSession) Close() error {
	s.end()
	return nil
}
