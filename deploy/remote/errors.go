package remote

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/nixbench/nixbench/deploy/failure"
)

// ErrClosed is the error of a connection after Close.
var ErrClosed = errors.New("connection closed")

// UnreachableError means that no SSH connection was established: no address, no route, no server,
// or no SSH answer in time. Waiting may help.
type UnreachableError struct {
	failure.About
	Down   string // state of the node's machine if it does not run, such as "off", see [Options.Down]; otherwise empty
	Silent string // why nothing answers at the address, such as "no route to host"; empty if something does
}

// NewUnreachableError returns an UnreachableError for the address of a node.
func NewUnreachableError(node, addr, down string, err error) *UnreachableError {
	e := &UnreachableError{failure.About{Node: node, Text: fmt.Sprintf("cannot reach %s: %v", addr, err), Err: err}, down, ""}
	switch {
	case down != "":
		e.Text = fmt.Sprintf("cannot reach %s: its machine is %s", addr, down)
		e.Advice = "nixbench start --on " + node + " starts it; nixbench console " + node + " shows what it prints"
	case errors.Is(err, syscall.ECONNREFUSED):
		e.Text += " (the host is up, but no SSH server listens on this port)"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		e.Text += " (check that this machine has a route to it)"
	}
	return e
}

// Kind implements [failure.Classified].
func (*UnreachableError) Kind() failure.Kind { return failure.Unreachable }

// SilentReason returns why nothing answers at any host of a node, in few words. It returns "" for any other error: something
// answers, and refuses the login, has a wrong host key, or does not speak SSH.
func SilentReason(err error) string {
	all, one := (*AllHostsError)(nil), (*UnreachableError)(nil)
	switch {
	case errors.As(err, &all) && slices.ContainsFunc(all.Errs, func(err error) bool { return SilentReason(err) == "" }):
		return ""
	case errors.As(err, &one):
		return one.Silent
	}
	return ""
}

// Reason returns in few words why no connection was established, for the report of a wait. The text does not contain
// the local port of the connection, so repeated attempts that fail for the same reason give the same text.
func Reason(err error) string {
	op, unreachable := (*net.OpError)(nil), (*UnreachableError)(nil)
	isUnreachable := errors.As(err, &unreachable)
	switch {
	case isUnreachable && unreachable.Down != "":
		return "its machine is " + unreachable.Down
	case errors.As(err, &op):
		return op.Err.Error()
	case isUnreachable:
		return unreachable.Err.Error()
	}
	return err.Error()
}

// AuthError means that the host has the right key, but refuses the login, or ends the session before the command runs. Possible reasons
// for the latter: the user's login shell runs no commands, the SSH key has a forced command, or the node does not admit the user.
type AuthError struct{ failure.About }

// Kind implements [failure.Classified].
func (*AuthError) Kind() failure.Kind { return failure.Unreachable }

// LostError means that an established connection was lost. The commands of the connection may still be running on the node.
type LostError struct{ failure.About }

// Kind implements [failure.Classified].
func (*LostError) Kind() failure.Kind { return failure.Activation }

// TimeoutError means that a command on the node did not end before its deadline, although the
// connection was open.
type TimeoutError struct{ failure.About }

// Kind implements [failure.Classified].
func (*TimeoutError) Kind() failure.Kind { return failure.Timeout }

// OutputError means that a command was ended because it printed more than [Cmd.MaxOutput].
type OutputError struct{ failure.About }

// RunError means that a command failed, or could not be started.
type RunError struct {
	failure.About
	ExitStatus int    // -1 if a signal ended the command
	Signal     string // KILL, TERM, … without SIG; "" if no signal ended the command
	Stderr     string // the last 4 KiB of the command's stderr
}

// ShellStatus returns the exit status that a shell would return: 128 plus the signal's number if a
// signal ended the command.
func (e *RunError) ShellStatus() int {
	if e.Signal == "" {
		return e.ExitStatus
	}
	return 128 + int(unix.SignalNum("SIG"+e.Signal))
}

// EscalationError means that the user could not become root, so the command was not run.
type EscalationError struct{ failure.About }

// Kind implements [failure.Classified].
func (*EscalationError) Kind() failure.Kind { return failure.Unreachable }

// appendTail returns a text with what a program has printed, if it has printed something.
func appendTail(text, printed string) string {
	return strings.TrimSuffix(text+": "+strings.TrimSpace(printed), ": ")
}

// quoteText quotes the end of a text that the server or the login shell has printed.
func quoteText(text string) string {
	text = strings.TrimSpace(text)
	return strconv.Quote(text[max(0, len(text)-500):])
}
