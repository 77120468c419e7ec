package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"

	"github.com/nixbench/nixbench/deploy/remote"
)

// newPrompt returns a function that asks the user on the terminal, one question at a time. It
// returns nil if there is no terminal.
func (a *app) newPrompt() remote.Prompt {
	if a.json || !term.IsTerminal(int(os.Stdin.Fd())) {
		return nil
	}
	var mu sync.Mutex
	return func(ctx context.Context, question string) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		if err := ctx.Err(); err != nil { // ctx may have ended while another question was open
			return nil, context.Cause(ctx)
		}
		var answer []byte
		var err error
		a.view.Pause(func() {
			fmt.Fprint(a.view.Stderr(), strings.TrimRight(question, ": ")+": ") // most servers end their questions with a colon
			answer, err = readPassword(ctx, int(os.Stdin.Fd()))
			fmt.Fprintln(a.view.Stderr())
		})
		return answer, err
	}
}

// readPassword reads a line without echo. When ctx ends, it restores the terminal's echo and
// returns, but the goroutine that reads continues, because the read cannot be interrupted.
func readPassword(ctx context.Context, fd int) ([]byte, error) {
	before, err := term.GetState(fd)
	if err != nil {
		return nil, err
	}
	type read struct {
		answer []byte
		err    error
	}
	done := make(chan read, 1)
	go func() {
		answer, err := term.ReadPassword(fd)
		done <- read{answer, err}
	}()
	select {
	case r := <-done:
		return r.answer, r.err
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), term.Restore(fd, before))
	}
}
