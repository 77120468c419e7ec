package remote

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
)

// candidates returns the configurations to dial, in this order. Before the first login, these are the configurations of
// all hosts of the node. After it, it is only the configuration of the host that accepted the login.
func (h *Host) candidates() []sshconfig.Config {
	if chosen := h.chosen.Load(); chosen != nil {
		return []sshconfig.Config{*chosen}
	}
	return append([]sshconfig.Config{h.cfg}, h.cfg.Fallbacks...)
}

// Default time limits of a login. briefTimeout is that of each host of a node except the last host. In [Host.TryConn] it is that of
// each host without a proxy: with a proxy, the limit covers the login at the jump host, too.
const (
	longTimeout  = 15 * time.Second
	briefTimeout = 5 * time.Second
)

// timeoutOf returns the time limit of connecting and logging in with cfg. last says that the node has no later host to try.
func (o Options) timeoutOf(cfg sshconfig.Config, last bool) time.Duration {
	if o.brief && !isProxied(cfg) || !o.brief && !last {
		return cmp.Or(cfg.ConnectTimeout, briefTimeout)
	}
	return cmp.Or(cfg.ConnectTimeout, longTimeout)
}

// dialInOrder dials the candidates one after the other and returns the connection to the first that accepts a login. Every later
// connection uses the same host, so that a run does not change between a node's hosts. A host that has a wrong key or refuses the login
// is skipped like a host that does not answer, because in another network its address may belong to another machine.
func (h *Host) dialInOrder(ctx context.Context, opts Options) (*Conn, error) {
	candidates := h.candidates()
	var failed []error
	for i, cfg := range candidates {
		cfg.ConnectTimeout = opts.timeoutOf(cfg, i == len(candidates)-1)
		conn, err := Dial(ctx, cfg, opts)
		if err == nil {
			h.handshakes.Add(1)
			h.choose(candidates[i], failed)
			return conn, nil
		}
		failed = append(failed, err)
		if ctx.Err() != nil {
			break // the others cannot be tried either
		}
	}
	if len(candidates) == 1 {
		return nil, failed[0]
	}
	return nil, failure.On(h.cfg.Node, &AllHostsError{h.cfg.Node, failed})
}

// choose stores cfg, the configuration that later connections use. It also reports why the hosts that come before this
// host were skipped; their errors are in failed.
func (h *Host) choose(cfg sshconfig.Config, failed []error) {
	if !h.chosen.CompareAndSwap(nil, &cfg) || len(failed) == 0 {
		return
	}
	say := h.opts.Send.NoteOn
	for _, err := range failed {
		if !errors.As(err, new(*UnreachableError)) {
			say = h.opts.Send.WarnOn // such as a changed host key
		}
	}
	say(h.cfg.Node, "%s: uses %s, because %s", h.cfg.Node, cfg.Addr(), joinErrors(h.cfg.Node, failed))
}

// AllHostsError means that none of several hosts of a node accepted a login.
type AllHostsError struct {
	node string
	Errs []error // one for each host that was tried
}

func (e *AllHostsError) Error() string {
	return "none of its hosts accepts a login: " + joinErrors(e.node, e.Errs)
}
func (e *AllHostsError) Unwrap() []error { return e.Errs }

// Brief returns the message in one line, for lists of nodes.
func (e *AllHostsError) Brief() string { return e.Error() }

// Kind implements [failure.Classified].
func (e *AllHostsError) Kind() failure.Kind { return failure.Unreachable }

func joinErrors(node string, errs []error) string {
	texts := make([]string, len(errs))
	for i, err := range errs {
		texts[i] = failure.TextOn(node, err)
	}
	return strings.Join(texts, "; ")
}

func joinAddresses(configs []sshconfig.Config) string {
	texts := make([]string, len(configs))
	for i, cfg := range configs {
		texts[i] = cfg.Addr()
	}
	return strings.Join(texts, " or ")
}
