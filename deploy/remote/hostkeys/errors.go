package hostkeys

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
)

// UnknownError means that no known_hosts file contains the host.
type UnknownError struct{ failure.About }

func newUnknownError(cfg sshconfig.Config, key ssh.PublicKey) error {
	files := strings.Join(slices.Concat(cfg.KnownHosts, cfg.GlobalKnownHosts), ", ")
	return &UnknownError{failure.About{Node: cfg.Node, Text: fmt.Sprintf(
		"the host key of %s is not known: it shows %s; if that is the right one, run again with --accept-new-host-keys (looked in %s)",
		cfg.Addr(), describeKey(key), cmp.Or(files, "nothing"))}}
}

// Kind implements [failure.Classified].
func (*UnknownError) Kind() failure.Kind { return failure.Unreachable }

// ChangedError means that the host shows another key than expected, or
// a revoked key. The host may be another machine, or an attacker.
type ChangedError struct{ failure.About }

// newChangedError returns the error for a host that shows another key than the expected ones. The Filename of a pinned key is
// empty.
func newChangedError(cfg sshconfig.Config, key ssh.PublicKey, expected ...xknownhosts.KnownKey) error {
	fix := "this machine was booted with the pinned key, so something else answers at its address"
	var texts []string
	for _, k := range expected {
		where := "pinned"
		if k.Filename != "" {
			where = fmt.Sprintf("%s:%d", k.Filename, k.Line)
			fix = fmt.Sprintf("if the host was reinstalled, remove line %d of %s", expected[0].Line, expected[0].Filename)
		}
		texts = append(texts, describeKey(k.Key)+" ("+where+")")
	}
	return &ChangedError{failure.About{Node: cfg.Node, Text: fmt.Sprintf("the host key of %s has CHANGED: it shows %s, expected %s; %s",
		cfg.Addr(), describeKey(key), strings.Join(texts, ", "), fix)}}
}

// Kind implements [failure.Classified].
func (*ChangedError) Kind() failure.Kind { return failure.Unreachable }

func describeKey(key ssh.PublicKey) string { return key.Type() + " " + ssh.FingerprintSHA256(key) }
