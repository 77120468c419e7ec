package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote"
)

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
		ui.DiscardInput(int(os.Stdin.Fd()))
		fmt.Fprintf(a.view.Stderr(), "%s [y/N] ", question)
		var err error
		if answer, err = readOrCancel(a.ctx, func() (string, error) {
			line, _ := bufio.NewReader(os.Stdin).ReadString('\n') // end of input counts as no
			return strings.ToLower(strings.TrimSpace(line)), nil
		}); err != nil {
			fmt.Fprintln(a.view.Stderr())
		}
	})
	a.sink(event.Event{Kind: event.Answer, Time: time.Now(), Since: asked})
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

func (a *app) canAsk() bool { return !a.json && term.IsTerminal(int(os.Stdin.Fd())) }

// askAboutList shows a list, such as the machines to remove, and asks the question unless yes is set, which it requires without a terminal.
func (a *app) askAboutList(command, question string, list []string, yes bool) error {
	if !yes && !a.canAsk() {
		return failure.WithHint(failure.NewUsage("%s: this needs confirmation and stdin is not a terminal; pass --yes:\n%s", command, strings.Join(list, "\n")), "check the list, then run the command again with --yes")
	}
	a.announce(func(w io.Writer) {
		for _, line := range list {
			ui.WriteText(w, "  "+line)
		}
	})
	return a.confirm(question, nil, yes)
}

func (a *app) askSecret(question string) ([]byte, error) {
	prompt := newPrompt(a)
	if prompt == nil {
		return nil, failure.WithHint(failure.NewUsage("this needs the %s and stdin is not a terminal", question), "use a key without a passphrase")
	}
	return prompt(a.ctx, question)
}

// newPrompt returns a function that asks the user for a secret, one question at a time; nil: there is no terminal.
func newPrompt(a *app) remote.Prompt {
	if !a.canAsk() {
		return nil
	}
	var mu sync.Mutex
	return func(ctx context.Context, question string) (answer []byte, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err := ctx.Err(); err != nil { // do not ask any more if the command was interrupted while another question was open
			return nil, context.Cause(ctx)
		}
		a.view.Pause(func() {
			fmt.Fprint(a.view.Stderr(), strings.TrimRight(question, ": ")+": ") // with exactly one colon, which most servers have at the end of their questions
			answer, err = readPassword(ctx, int(os.Stdin.Fd()))
			fmt.Fprintln(a.view.Stderr())
		})
		return answer, err
	}
}

// readPassword reads a line without echo. When ctx ends, it restores the terminal's echo.
func readPassword(ctx context.Context, fd int) ([]byte, error) {
	before, err := term.GetState(fd)
	if err != nil {
		return nil, err
	}
	answer, err := readOrCancel(ctx, func() ([]byte, error) { return term.ReadPassword(fd) })
	if ctx.Err() != nil {
		err = errors.Join(err, term.Restore(fd, before))
	}
	return answer, err
}

// readOrCancel returns the result of read. If ctx ends before, it returns the cause. read then continues in its goroutine, because
// a read of a terminal or a pipe cannot be interrupted.
func readOrCancel[T any](ctx context.Context, read func() (T, error)) (value T, err error) {
	done := make(chan func() (T, error), 1)
	go func() {
		value, err := read()
		done <- func() (T, error) { return value, err }
	}()
	select {
	case result := <-done:
		return result()
	case <-ctx.Done():
		return value, context.Cause(ctx)
	}
}

// readSelection returns the values of --on, with the terms on stdin, between commas or white space, in place of the value `-`.
func readSelection(ctx context.Context, on []string) ([]string, error) {
	i := slices.Index(on, "-")
	if i < 0 {
		return on, nil
	}
	if term.IsTerminal(int(os.Stdin.Fd())) {
		return nil, failure.WithHint(failure.NewUsage("--on -: stdin is a terminal"), "write the nodes to stdin, such as: echo web-1 db | nixbench … --on -")
	}
	text, err := readOrCancel(ctx, func() ([]byte, error) { return durable.ReadAll(os.Stdin, 1<<20) })
	if err != nil {
		return nil, failure.NewUsage("--on -: stdin: %w", err)
	}
	terms := strings.Fields(strings.ReplaceAll(string(text), ",", " "))
	if len(terms) == 0 {
		return nil, failure.NewUsage("--on -: stdin contains no nodes")
	}
	return slices.Replace(slices.Clone(on), i, i+1, strings.Join(terms, ",")), nil
}
