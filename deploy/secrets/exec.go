package secrets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
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

// runProgram returns what a program on this computer prints to stdout. The program has no stdin; a program that asks for a passphrase
// opens the terminal itself. The program's stderr is discarded: it could contain a part of a secret, and errors are recorded.
//
// When ctx ends, the program gets SIGTERM, and SIGKILL 0.3 seconds later. Without a terminal, all programs that it has started get
// these signals, too: they are one process group. At a terminal, the program stays in the process group of nixbench, because a
// program in another group cannot read from the terminal; there, Ctrl-C signals all of them.
func runProgram(ctx context.Context, argv ...string) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	limited, refuse := context.WithCancelCause(limited)
	defer refuse(nil)
	cmd := exec.CommandContext(limited, argv[0], argv[1:]...)
	ownGroup := !hasTerminal()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: ownGroup}
	child.SetDeathSignal(cmd.SysProcAttr, syscall.SIGTERM)
	if ownGroup {
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	} else {
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	}
	cmd.WaitDelay = keyGrace
	out := &limitedOutput{end: refuse}
	cmd.Stdout = out
	err := cmd.Run()
	if limited.Err() != nil && ownGroup && cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
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
		return out.kept.Bytes(), nil
	case errors.Is(err, exec.ErrNotFound):
		return nil, err
	}
	return nil, fmt.Errorf("%w; run it by hand to see why", err)
}

// hasTerminal reports whether a program can ask the user for a passphrase at the terminal of nixbench.
func hasTerminal() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	tty.Close()
	return true
}

// limitedOutput stores at most durable.KeySize bytes of a program's output, and ends the program when the output exceeds the limit.
type limitedOutput struct {
	kept bytes.Buffer // not embedded: its ReadFrom would read without a limit
	end  context.CancelCauseFunc
}

func (o *limitedOutput) Write(p []byte) (int, error) {
	if o.kept.Len()+len(p) > durable.KeySize {
		err := &durable.SizeError{Limit: durable.KeySize}
		o.end(err)
		return 0, err
	}
	return o.kept.Write(p)
}
