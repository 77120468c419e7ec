package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
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

// earlyTimeout is the default time limit for the login at each host of a node except the last host.
const earlyTimeout = 5 * time.Second

// optionsFor returns the options for dialing candidate i.
func optionsFor(opts Options, candidates []sshconfig.Config, i int) Options {
	if i < len(candidates)-1 {
		opts.Timeout = cmp.Or(opts.Timeout, candidates[i].ConnectTimeout, earlyTimeout)
	}
	return opts
}

// dialInOrder dials the candidates one after the other and returns the connection to the first that accepts a login. Every later
// connection uses the same host, so that a run does not change between a node's hosts. A host that has a wrong key or refuses the login
// is skipped like a host that does not answer, because in another network its address may belong to another machine.
func (h *Host) dialInOrder(ctx context.Context, opts Options) (*Conn, error) {
	candidates := h.candidates()
	var failed []error
	for i, cfg := range candidates {
		conn, err := Dial(ctx, cfg, optionsFor(opts, candidates, i))
		if err == nil {
			h.handshakes.Add(1)
			h.choose(cfg, failed)
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
	return nil, &AllHostsError{Node: h.cfg.Node, Errs: failed}
}

// choose stores cfg, the configuration that later connections use. It also reports why the hosts that come before this
// host were skipped; their errors are in failed.
func (h *Host) choose(cfg sshconfig.Config, failed []error) {
	if !h.chosen.CompareAndSwap(nil, &cfg) || len(failed) == 0 {
		return
	}
	level := "note"
	for _, err := range failed {
		var unreachable *UnreachableError
		if !errors.As(err, &unreachable) {
			level = "warning" // such as a changed host key
		}
	}
	h.opts.Send.Send(event.Event{Kind: event.Message, Phase: event.Connect, Node: h.cfg.Node, Level: level, Time: time.Now(),
		Text: fmt.Sprintf("%s: uses %s, because %s", h.cfg.Node, cfg.Addr(), joinErrors(h.cfg.Node, failed))})
}

// AllHostsError means that none of several hosts of a node accepted a login.
type AllHostsError struct {
	Node string
	Errs []error // one for each host that was tried
}

func (e *AllHostsError) Error() string   { return failure.Message(e) }
func (e *AllHostsError) Unwrap() []error { return e.Errs }

// OnNode implements [failure.OnNode].
func (e *AllHostsError) OnNode() (node, text string) { return e.Node, e.Brief() }

// Brief returns the message without the name of the node.
func (e *AllHostsError) Brief() string {
	return "none of its hosts accepts a login: " + joinErrors(e.Node, e.Errs)
}

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
