package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
)

// sudoCommand returns the escalation command with sudo's options for the password. If canAsk is set,
// sudo prints the mark as its prompt and reads the password from stdin. Otherwise sudo is
// non-interactive. sudo prints the mark only if it needs a password, so each command is started once.
func sudoCommand(escalation []string, mark string, canAsk bool) []string {
	if canAsk {
		return slices.Concat(escalation[:1], []string{"-S", "-p", mark}, escalation[1:])
	}
	return slices.Concat(escalation[:1], []string{"-n"}, escalation[1:])
}

// answerPrompts sends the password to sudo at each prompt, until the command itself has started or the session has
// ended. The input of the command itself is sent only after that, so that sudo cannot read it.
func (r *runningCommand) answerPrompts(ctx context.Context, stdin io.Writer) error {
	var wrong []byte
	for {
		select {
		case <-r.started:
			return nil
		case <-r.ended:
			return nil
		case <-r.prompts:
			ask := r.conn.opts.Prompt
			if !r.mayAsk {
				ask = nil
			}
			cfg := r.conn.cfg
			password, err := r.conn.sudo.get(ctx, wrong, ask, fmt.Sprintf("sudo password of %s on %s", cfg.User, cfg.Node))
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				return newEscalationError(cfg, "it asks for a password: "+err.Error(), err)
			}
			line := append(slices.Clone(password), '\n')
			_, err = stdin.Write(line)
			clear(line)
			if err != nil {
				return nil // the session has ended, and the caller of Run gets the error from its exit status
			}
			wrong = password // if sudo asks again, this password was wrong
		}
	}
}

// explainRefusal returns the error for the case that the escalation command, such as sudo, did not start the command.
func (r *runningCommand) explainRefusal() error {
	cfg, reason, printed := r.conn.cfg, "it refused", r.before.String()
	if isSudo(cfg.Escalation) && r.conn.opts.Prompt == nil && strings.Contains(printed, "password") {
		reason = "it asks for a password, and there is no terminal to ask on: run nixbench on a terminal, or set security.sudo.wheelNeedsPassword = false on the node"
	}
	return newEscalationError(cfg, appendTail(reason, printed), nil)
}

func newEscalationError(cfg sshconfig.Config, reason string, err error) error {
	return &EscalationError{failure.About{Node: cfg.Node, Text: fmt.Sprintf("%s cannot become root with %s: %s", cfg.User, strings.Join(cfg.Escalation, " "), reason), Err: err}}
}

// sudoPassword is the sudo password of a host. The user is asked for it once, and it is stored only in memory.
type sudoPassword struct {
	mu    sync.Mutex // held while the user is asked, so that commands that start at the same time ask only once
	value []byte
}

// get returns a copy of the password. It asks the user if no password is stored yet. It also asks if the stored
// password equals the argument wrong, a password that sudo has refused.
func (s *sudoPassword) get(ctx context.Context, wrong []byte, ask Prompt, question string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if wrong != nil && bytes.Equal(s.value, wrong) {
		clear(s.value)
		s.value = nil
		question = "wrong password, again: " + question
	}
	if s.value == nil && ask == nil {
		return nil, errors.New("there is no terminal to ask on")
	}
	if s.value == nil {
		value, err := ask(ctx, question)
		if err != nil {
			return nil, err
		}
		if bytes.ContainsAny(value, "\n\r") {
			return nil, errors.New("the password contains a line break")
		}
		s.value = value
	}
	return slices.Clone(s.value), nil
}

func (s *sudoPassword) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.value)
	s.value = nil
}
