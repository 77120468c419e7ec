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

// newPrompt returns a function that asks the user for a secret (such as a password) on the terminal, one question at a time. It
// returns nil if there is no terminal.
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
	done := make(chan struct{})
	var result T
	var resultErr error
	go func() {
		defer close(done)
		result, resultErr = read()
	}()
	select {
	case <-done:
		return result, resultErr
	case <-ctx.Done():
		return value, context.Cause(ctx)
	}
}
