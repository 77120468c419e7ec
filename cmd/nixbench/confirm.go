package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// errDeclined is a no to a question.
var errDeclined = errors.New("nothing was done")

// mayAct decides whether a command that interrupts nodes may go on without --on, which
// could be a slip: on a terminal it will ask, elsewhere it needs --yes.
func (a *app) mayAct(command string, on []string, yes bool) error {
	if len(on) > 0 || yes || a.canAsk() {
		return nil
	}
	return &hinted{usagef("%s: without a terminal nobody can be asked whether all nodes are meant", command), "--on says which nodes, or --yes that all are meant"}
}

// allMayBeMeant holds meta.allowApplyAll against a command without --on.
func allMayBeMeant(command string, e *nixeval.Evaluator, hive *nixeval.Hive, on []string) error {
	if hive.Meta.AllowApplyAll || len(on) > 0 {
		return nil
	}
	return &hinted{usagef("%s: meta.allowApplyAll is false in %s, so --on must say which nodes", command, e.Source), "for all of them: --on '*'"}
}

// confirmed asks, where mayAct has said that it will.
func (a *app) confirmed(question string, on []string, yes bool) error {
	if len(on) > 0 || yes {
		return nil
	}
	answer := make(chan string, 1)
	a.view.Pause(func() {
		fmt.Fprintf(os.Stderr, "%s [y/N] ", question)
		go func() {
			line, _ := bufio.NewReader(os.Stdin).ReadString('\n') // no answer is a no
			answer <- strings.ToLower(strings.TrimSpace(line))
		}()
		select {
		case text := <-answer:
			answer <- text
		case <-a.ctx.Done(): // Ctrl-C does not end the read
			fmt.Fprintln(os.Stderr)
			answer <- ""
		}
	})
	if err := a.ctx.Err(); err != nil {
		return err
	}
	if text := <-answer; text == "y" || text == "yes" {
		return nil
	}
	return &usageError{err: errDeclined}
}

// announce shows what is about to be done, beside the progress of doing it.
func (a *app) announce(show func(io.Writer)) {
	if !a.json {
		a.view.Pause(func() { show(os.Stderr) })
	}
}

func (a *app) canAsk() bool { return !a.json && term.IsTerminal(int(os.Stdin.Fd())) }

// free tells early, before anybody is asked anything, that somebody else works on the
// cluster. The lock itself comes later.
func free(dir state.Dir) error {
	holder, err := dir.Holder()
	if err == nil && holder != nil {
		err = &state.LockedError{Dir: dir, Holder: *holder}
	}
	return err
}
