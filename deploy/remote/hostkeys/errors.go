package hostkeys

import (
	"cmp"
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/failure"
)

// UnknownError means that no known_hosts file contains the host.
type UnknownError struct {
	Node, Addr string
	Key        ssh.PublicKey
	Files      []string // the files that were searched
}

func (e *UnknownError) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode].
func (e *UnknownError) OnNode() (node, text string) {
	return e.Node, fmt.Sprintf("the host key of %s is not known: it shows %s %s; if that is the right one, run again with --accept-new-host-keys (looked in %s)",
		e.Addr, e.Key.Type(), ssh.FingerprintSHA256(e.Key), cmp.Or(strings.Join(e.Files, ", "), "nothing"))
}

// Kind implements [failure.Classified].
func (e *UnknownError) Kind() failure.Kind { return failure.Unreachable }

// KnownKey is an expected host key and the file that contains it.
type KnownKey struct {
	File string // "" for a pinned key
	Line int
	Key  ssh.PublicKey
}

func (k KnownKey) String() string {
	print := k.Key.Type() + " " + ssh.FingerprintSHA256(k.Key)
	if k.File == "" {
		return print + " (pinned)"
	}
	return fmt.Sprintf("%s (%s:%d)", print, k.File, k.Line)
}

// ChangedError means that the host shows another key than expected, or
// a revoked key. The host may be another machine, or an attacker.
type ChangedError struct {
	Node, Addr string
	Key        ssh.PublicKey
	Want       []KnownKey
	Revoked    bool
}

func (e *ChangedError) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode].
func (e *ChangedError) OnNode() (node, text string) {
	want := make([]string, len(e.Want))
	for i, k := range e.Want {
		want[i] = k.String()
	}
	shown := e.Key.Type() + " " + ssh.FingerprintSHA256(e.Key)
	if e.Revoked {
		return e.Node, fmt.Sprintf("the host key of %s is revoked: %s, see %s", e.Addr, shown, strings.Join(want, ", "))
	}
	fix := "this machine was booted with the pinned key, so something else answers at its address"
	if len(e.Want) > 0 && e.Want[0].File != "" {
		fix = fmt.Sprintf("if the host was reinstalled, remove line %d of %s", e.Want[0].Line, e.Want[0].File)
	}
	return e.Node, fmt.Sprintf("the host key of %s has CHANGED: it shows %s, expected %s; %s",
		e.Addr, shown, strings.Join(want, ", "), fix)
}

// Kind implements [failure.Classified].
func (e *ChangedError) Kind() failure.Kind { return failure.Unreachable }
