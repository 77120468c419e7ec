package secrets

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"github.com/nixbench/nixbench/deploy/child"
	"github.com/nixbench/nixbench/deploy/durable"
)

const (
	keyTimeout = 5 * time.Minute        // time limit of a keyCommand, which may ask the user for a passphrase
	keyGrace   = 300 * time.Millisecond // between SIGTERM and SIGKILL
)

// Exec is the default Runner. The program has no stdin; a program that asks for a passphrase
// opens the terminal itself. The program's stderr is discarded: it could contain a part of a
// secret, and errors are recorded.
//
// When ctx ends, the program and its descendants get SIGTERM, and SIGKILL 0.3 seconds later. The
// descendants are found by their parents and not by a process group, since programs in a separate process
// group cannot read from the terminal.
func Exec(ctx context.Context, argv ...string) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	limited, refuse := context.WithCancelCause(limited)
	defer refuse(nil)
	cmd := exec.CommandContext(limited, argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	child.SetDeathSignal(cmd.SysProcAttr, syscall.SIGTERM)
	var tree []process
	cmd.Cancel = func() error {
		tree = descendants(cmd.Process.Pid)
		signalAll(tree, syscall.SIGTERM)
		return cmd.Process.Signal(syscall.SIGTERM)
	}
	cmd.WaitDelay = keyGrace
	out := &limitedOutput{Buffer: durable.Buffer{Limit: durable.KeySize}, end: refuse}
	cmd.Stdout = out
	err := cmd.Run()
	if limited.Err() != nil {
		signalAll(tree, syscall.SIGKILL)
	}
	var size *durable.SizeError
	switch {
	case errors.As(context.Cause(limited), &size):
		return nil, fmt.Errorf("its output: %w", size)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case limited.Err() != nil:
		return nil, fmt.Errorf("it did not end within %v", keyTimeout)
	case err == nil:
		return out.Bytes(), nil
	case errors.Is(err, exec.ErrNotFound):
		return nil, err
	}
	return nil, fmt.Errorf("%w; run it by hand to see why", err)
}

// limitedOutput stores a program's output, and ends the program when the output exceeds the limit.
type limitedOutput struct {
	durable.Buffer
	end context.CancelCauseFunc
}

func (o *limitedOutput) Write(p []byte) (int, error) {
	n, err := o.Buffer.Write(p)
	if err != nil {
		o.end(err)
	}
	return n, err
}
