package closure

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote"
)

// Error is a failed copy or build. The wrapped error shows the cause: an error of package remote if the connection
// failed, a *nixeval.BuildError if a build on the node failed, or the context's error after a cancellation.
type Error struct{ failure.About }

// Kind implements [failure.Classified].
func (e *Error) Kind() failure.Kind { return failure.Copy }

// newError returns the error of a step. details follow the message in lines of their own, such as what Nix has printed.
func newError(node, step string, err error, advice string, details ...string) error {
	text := step + ": " + failure.TextOn(node, err)
	for _, d := range details {
		if d = strings.TrimSpace(d); d != "" {
			text += "\n  " + strings.ReplaceAll(d, "\n", "\n  ")
		}
	}
	return &Error{failure.About{Node: node, Text: text, Err: err, Advice: advice}}
}

var (
	unsignedRE = regexp.MustCompile(`lacks a (?:valid )?signature`)
	fullRE     = regexp.MustCompile(`No space left on device|Disk quota exceeded|database or disk is full`)
)

// newCopyError returns the error of a failed copy. It contains the number of paths that were copied; these paths stay on the node.
// From the text printed by Nix, it derives the cause and the hint.
func (l *link) newCopyError(m pathSet, err error, copied int, command, printed string) error {
	step, advice := m.stepName(), ""
	if copied > 0 {
		step += fmt.Sprintf(" (%d copied, the next run continues from there)", copied)
	}
	switch user := l.conn.User(); {
	case unsignedRE.MatchString(printed):
		err = fmt.Errorf("the Nix daemon does not trust %s, and the paths are not signed by a key that it trusts", user)
		advice = fmt.Sprintf("log in as root, or add %q to nix.settings.trusted-users of %s; or sign the paths with a key of its nix.settings.trusted-public-keys", user, l.node)
	case fullRE.MatchString(printed):
		err = fmt.Errorf("the node's disk is full: %w", err)
		advice = "free space in the node's /nix/store, for example with nix-collect-garbage -d, then run again: copied paths are kept"
	case errors.As(err, new(*remote.LostError)):
		advice = "run again: copied paths are kept"
	}
	if strings.HasSuffix(err.Error(), strings.TrimSpace(printed)) {
		printed = "" // the message already contains it
	}
	return newError(l.node, step, err, advice, command, printed)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
