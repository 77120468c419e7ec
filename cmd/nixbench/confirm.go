package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
)

// errDeclined means that the user answered a question with no.
var errDeclined = failure.WithKind(failure.Declined, errors.New("cancelled, nothing was changed"))

// requireConfirmation returns an error if a command that interrupts nodes cannot ask the user on a terminal, and neither --on nor
// --yes is set. Without --on the command affects all nodes, and the user may have forgotten --on.
func (a *app) requireConfirmation(command string, on []string, yes bool) error {
	if len(on) > 0 || yes || a.canAsk() {
		return nil
	}
	return failure.WithHint(failure.NewUsage("%s: this needs confirmation and stdin is not a terminal; pass --yes, or select nodes with --on", command), "without --on, the command changes all nodes")
}

// confirm asks the user the question, unless --on or --yes is set. If the answer is not y or yes, it returns errDeclined.
func (a *app) confirm(question string, on []string, yes bool) error {
	if len(on) > 0 || yes {
		return nil
	}
	asked, answer := time.Now(), ""
	a.view.Pause(func() {
		fmt.Fprintf(a.view.Stderr(), "%s [y/N] ", question)
		var err error
		if answer, err = readOrCancel(a.ctx, func() (string, error) {
			line, _ := bufio.NewReader(os.Stdin).ReadString('\n') // end of input counts as no
			return strings.ToLower(strings.TrimSpace(line)), nil
		}); err != nil {
			fmt.Fprintln(a.view.Stderr())
		}
	})
	a.sendEvent(event.Event{Kind: event.Answer, Time: time.Now(), Since: asked})
	if err := a.ctx.Err(); err != nil {
		return err
	}
	if answer == "y" || answer == "yes" {
		return nil
	}
	return errDeclined
}

// announce prints to stderr what the command is about to do. It prints nothing with --json.
func (a *app) announce(show func(io.Writer)) {
	if !a.json {
		a.view.Pause(func() { show(a.view.Stderr()) })
	}
}

// canAsk reports whether the command can ask the user a question on a terminal.
func (a *app) canAsk() bool { return !a.json && term.IsTerminal(int(os.Stdin.Fd())) }

// askAboutList shows a list, such as the machines to remove, and asks the user the question. With yes set, it does not ask.
// Without a terminal, it returns an error unless yes is set.
func (a *app) askAboutList(command, question string, list []string, yes bool) error {
	if !yes && !a.canAsk() {
		return failure.WithHint(failure.NewUsage("%s: this needs confirmation and stdin is not a terminal; pass --yes:\n%s", command, strings.Join(list, "\n")), "check the list, then run the command again with --yes")
	}
	a.announce(func(w io.Writer) {
		for _, line := range list {
			ui.WriteText(w, "  "+line, "    ")
		}
	})
	return a.confirm(question, nil, yes)
}
