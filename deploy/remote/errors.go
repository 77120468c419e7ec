package remote

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
)

// ErrClosed is the error of a connection after Close.
var ErrClosed = errors.New("connection closed")

// UnreachableError means that no SSH connection was established: no address, no route, no server,
// or no SSH answer in time. Waiting may help.
type UnreachableError struct {
	Node, Addr string
	Down       string // state of the node's machine if it does not run, such as "off", see [Options.Down]; otherwise empty
	Err        error
}

func (e *UnreachableError) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode].
func (e *UnreachableError) OnNode() (node, text string) {
	if e.Down != "" {
		return e.Node, fmt.Sprintf("cannot reach %s: its machine is %s", e.Addr, e.Down)
	}
	return e.Node, fmt.Sprintf("cannot reach %s: %v%s", e.Addr, e.Err, e.hint())
}

// Kind implements [failure.Classified].
func (e *UnreachableError) Kind() failure.Kind { return failure.Unreachable }

// Hint returns how the user can start the node's machine if the machine does not run.
func (e *UnreachableError) Hint() string {
	if e.Down == "" {
		return ""
	}
	return "nixbench start --on " + e.Node + " starts it; nixbench console " + e.Node + " shows what it prints"
}

func (e *UnreachableError) hint() string {
	switch {
	case errors.Is(e.Err, syscall.ECONNREFUSED):
		return " (the host is up, but no SSH server listens on this port)"
	case errors.Is(e.Err, syscall.EHOSTUNREACH), errors.Is(e.Err, syscall.ENETUNREACH):
		return " (check that this machine has a route to it)"
	}
	return ""
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// Reason returns in few words why no connection was established, for the report of a wait. The text does not contain
// the local port of the connection, so repeated attempts that fail for the same reason give the same text.
func Reason(err error) string {
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		return op.Err.Error()
	}
	if down := (*UnreachableError)(nil); errors.As(err, &down) {
		return down.Err.Error()
	}
	return err.Error()
}

// AuthError means that the host has the right key but refuses the login.
type AuthError struct {
	Node, Addr, User string
	Tried            []string // each offered key; also each configured key that could not be offered, with the reason
	Err              error
}

func (e *AuthError) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode].
func (e *AuthError) OnNode() (node, text string) {
	return e.Node, fmt.Sprintf("%s refuses to log in %s: tried %s; add one of these keys to the user's authorized keys, or name another with deployment.sshOptions: %v",
		e.Addr, e.User, joinOrNothing(e.Tried), e.Err)
}

// Kind implements [failure.Classified].
func (e *AuthError) Kind() failure.Kind { return failure.Unreachable }

func (e *AuthError) Unwrap() error { return e.Err }

// LostError means that an established connection was lost. The commands of the connection may still be running on the node.
type LostError struct {
	Node, Addr string
	Err        error
}

func (e *LostError) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode].
func (e *LostError) OnNode() (node, text string) {
	return e.Node, fmt.Sprintf("lost the connection to %s: %v", e.Addr, e.Err)
}

// Kind implements [failure.Classified].
func (e *LostError) Kind() failure.Kind { return failure.Activation }

func (e *LostError) Unwrap() error { return e.Err }

// TimeoutError means that a command on the node did not end before its deadline, although the
// connection was open.
type TimeoutError struct {
	Node, Addr string
	Command    string
	Err        error
}

func (e *TimeoutError) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode].
func (e *TimeoutError) OnNode() (node, text string) {
	return e.Node, fmt.Sprintf("%s on %s: no answer in time: %v", e.Command, e.Addr, e.Err)
}

// Kind implements [failure.Classified].
func (e *TimeoutError) Kind() failure.Kind { return failure.Timeout }

// Hint returns what the user can do.
func (e *TimeoutError) Hint() string {
	return "the node accepts connections, but its commands do not end in time: check its load, memory and disk, then run the command again"
}

func (e *TimeoutError) Unwrap() error { return e.Err }

// OutputError means that a command was ended because it printed more than [Cmd.MaxOutput].
type OutputError struct {
	Node, Addr string
	Command    string
	Err        *durable.SizeError
}

func (e *OutputError) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode].
func (e *OutputError) OnNode() (node, text string) {
	return e.Node, fmt.Sprintf("%s on %s: its output: %v", e.Command, e.Addr, e.Err)
}

// Hint returns what the user can do.
func (e *OutputError) Hint() string {
	return "no command of a working node prints so much: check whether the node is compromised"
}

func (e *OutputError) Unwrap() error { return e.Err }

// RunError means that a command failed, or could not be started.
type RunError struct {
	Node, Host string
	Argv       []string
	Name       string // Cmd.Name
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
	return 128 + signalNumbers[e.Signal]
}

// signalNumbers are the numbers of signals on Linux, since nodes run NixOS. The map contains the signals that sshd reports by name.
var signalNumbers = map[string]int{
	"HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "TRAP": 5, "ABRT": 6, "BUS": 7, "FPE": 8, "KILL": 9, "USR1": 10,
	"SEGV": 11, "USR2": 12, "PIPE": 13, "ALRM": 14, "TERM": 15, "XCPU": 24, "XFSZ": 25, "SYS": 31,
}

func (e *RunError) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode].
func (e *RunError) OnNode() (node, text string) {
	text = fmt.Sprintf("%s on %s: %s", Cmd{Argv: e.Argv, Name: e.Name}, e.Host, formatExit(e.ExitStatus, e.Signal))
	if tail := strings.TrimSpace(e.Stderr); tail != "" {
		text += ": " + tail
	}
	return e.Node, text
}

// LoginShellError means that the login succeeded, but the session ended before the command ran. Possible reasons: the
// user's login shell runs no commands, the SSH key has a forced command, or the node does not admit the user.
type LoginShellError struct {
	Node, Addr, User string
	How              string // how the session ended
	Printed          string // the text that the session has printed
}

func (e *LoginShellError) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode].
func (e *LoginShellError) OnNode() (node, text string) {
	text = fmt.Sprintf("%s accepts the login of %s, but runs no command: %s", e.Addr, e.User, e.How)
	if e.Printed != "" {
		text += ": " + quoteText(e.Printed)
	}
	return e.Node, text
}

// quoteText quotes the end of a text that the server or the login shell has printed.
func quoteText(text string) string {
	text = strings.TrimSpace(text)
	return strconv.Quote(text[max(0, len(text)-500):])
}

// Kind implements [failure.Classified].
func (e *LoginShellError) Kind() failure.Kind { return failure.Unreachable }

// Hint returns what the user can do.
func (e *LoginShellError) Hint() string {
	return fmt.Sprintf("check the login shell of %s on %s (users.users.%[1]s.shell), its files such as .bashrc, and the forced command of its key; or set another deployment.targetUser", e.User, e.Node)
}

// EscalationError means that the user could not become root, so the command
// was not run.
type EscalationError struct {
	Node, User string
	Argv       []string // the escalation command
	Reason     string
	Stderr     string
	Err        error // the error of Options.Prompt; nil if the prompt did not fail
}

func (e *EscalationError) Unwrap() error { return e.Err }

func (e *EscalationError) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode].
func (e *EscalationError) OnNode() (node, text string) {
	text = fmt.Sprintf("%s cannot become root with %s: %s", e.User, strings.Join(e.Argv, " "), e.Reason)
	if tail := strings.TrimSpace(e.Stderr); tail != "" {
		text += ": " + tail
	}
	return e.Node, text
}

// Kind implements [failure.Classified].
func (e *EscalationError) Kind() failure.Kind { return failure.Unreachable }

func joinOrNothing(words []string) string {
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, ", ")
}
