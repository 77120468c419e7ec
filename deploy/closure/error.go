package closure

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote"
)

// Error is a failed copy or build. The wrapped error shows the cause: an error of package remote if the connection
// failed, a *nixeval.BuildError if a build on the node failed, or the context's error after a cancellation.
type Error struct {
	Node   string
	Phase  event.Phase // the phase event.Copy, or event.Build if the node builds
	Step   string      // the step that failed
	Argv   []string    // the failed command, local or on the node; nil if the command is not the cause
	Stderr string      // the end of the command's output
	Err    error
	hint   string
}

func (e *Error) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode].
func (e *Error) OnNode() (node, text string) {
	text = e.Step + ": " + failure.TextOn(e.Node, e.Err)
	if len(e.Argv) > 0 {
		text += "\n  command: " + strings.Join(e.Argv, " ")
	}
	if tail := strings.TrimSpace(e.Stderr); tail != "" {
		text += "\n  " + strings.ReplaceAll(tail, "\n", "\n  ")
	}
	return e.Node, text
}

// Kind implements [failure.Classified].
func (e *Error) Kind() failure.Kind { return failure.Copy }

func (e *Error) Unwrap() error { return e.Err }

// Hint returns what the user can do to fix the error, or "".
func (e *Error) Hint() string { return e.hint }

// newError returns the error of a step of a copy.
func (l *link) newError(step string, err error) *Error {
	return &Error{Node: l.node, Phase: event.Copy, Step: step, Err: err}
}

// daemonAccessHint returns the hint for a user that may not use the node's Nix daemon.
func daemonAccessHint(node, user string) string {
	return fmt.Sprintf("log in as root, or let %[1]q use the Nix daemon: it must be in nix.settings.allowed-users and nix.settings.trusted-users of %[2]s, and its socket must be open to it", user, node)
}

var (
	unsignedRE = regexp.MustCompile(`lacks a (?:valid )?signature`)
	fullRE     = regexp.MustCompile(`No space left on device|Disk quota exceeded|database or disk is full`)
)

// addCopyReason completes the error of a failed copy. It adds the number of paths that were copied; these paths stay on the node.
// From the text printed by Nix, it also derives the cause and the hint.
func (l *link) addCopyReason(e *Error, printed string, copied int) {
	if copied > 0 {
		e.Step += fmt.Sprintf(" (%d copied, the next run continues from there)", copied)
	}
	switch {
	case unsignedRE.MatchString(printed):
		e.Err = fmt.Errorf("the Nix daemon does not trust %s, and the paths are not signed by a key that it trusts", l.conn.User())
		e.Stderr = printed
		e.hint = fmt.Sprintf("log in as root, or add %q to nix.settings.trusted-users of %s; or sign the paths with a key of its nix.settings.trusted-public-keys", l.conn.User(), e.Node)
	case fullRE.MatchString(printed):
		e.Err = fmt.Errorf("the node's disk is full: %w", e.Err)
		e.hint = "free space in the node's /nix/store, for example with nix-collect-garbage -d, then run again: copied paths are kept"
	case errors.As(e.Err, new(*remote.LostError)):
		e.hint = "run again: copied paths are kept"
	}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
