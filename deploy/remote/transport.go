package remote

import (
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/crypto/ssh"
)

// transport carries the commands and the sockets of a [Conn]: to a node over SSH, or on this machine.
type transport interface {
	newSession(stdout, stderr io.Writer) (session, error)
	Dial(network, addr string) (net.Conn, error)
	ping() error // sends a request that does nothing, and returns nil when the other side has answered it
	Wait() error // returns when the transport has ended
	Close() error
}

// session runs one command.
type session interface {
	StdinPipe() (io.WriteCloser, error)
	Start(line string) error // the login shell executes the line
	Wait() error             // returns an *exitError unless the exit status is 0
	Signal(ssh.Signal) error
	Close() error
}

// exitError describes how a command has ended: by an exit status or by a signal.
type exitError struct {
	status int    // -1 if a signal ended the command
	signal string // KILL, TERM, …; "" if no signal ended the command
}

func (e *exitError) Error() string {
	if e.signal != "" {
		return "killed by signal " + e.signal
	}
	return fmt.Sprintf("exit status %d", e.status)
}

type sshTransport struct{ *ssh.Client }

func (t sshTransport) newSession(stdout, stderr io.Writer) (session, error) {
	s, err := t.NewSession()
	if err != nil {
		return nil, err
	}
	s.Stdout, s.Stderr = stdout, stderr
	return sshSession{s}, nil
}

func (t sshTransport) ping() error {
	_, _, err := t.SendRequest("keepalive@openssh.com", true, nil)
	return err
}

type sshSession struct{ *ssh.Session }

func (s sshSession) Wait() error {
	err := s.Session.Wait()
	if exit := (*ssh.ExitError)(nil); errors.As(err, &exit) {
		if exit.Signal() != "" {
			return &exitError{-1, exit.Signal()}
		}
		return &exitError{status: exit.ExitStatus()}
	}
	return err
}
