package secrets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"github.com/nixbench/nixbench/deploy/durable"
)

const (
	keyTimeout = 5 * time.Minute        // of a keyCommand: it may ask somebody for a passphrase
	keyGrace   = 300 * time.Millisecond // for a cancelled one to end by itself
)

// Exec is the real Runner. The program has no stdin: one that asks for a passphrase
// opens the terminal itself. What it prints on stderr is not kept: it could be part
// of a secret, and errors are recorded.
//
// When ctx ends, the program and everything that it started get SIGTERM, and SIGKILL a moment
// later. They stay in our process group, as a group of their own could not read
// from the terminal; so their processes are looked up.
func Exec(ctx context.Context, argv ...string) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	limited, refuse := context.WithCancelCause(limited)
	defer refuse(nil)
	cmd := exec.CommandContext(limited, argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} // should we be killed
	var tree []process
	cmd.Cancel = func() error {
		tree = descendants(cmd.Process.Pid)
		signalAll(tree, syscall.SIGTERM)
		return cmd.Process.Signal(syscall.SIGTERM)
	}
	cmd.WaitDelay = keyGrace
	out := &output{limit: durable.KeySize, full: refuse}
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
		return out.kept.Bytes(), nil
	case errors.Is(err, exec.ErrNotFound):
		return nil, err
	}
	return nil, fmt.Errorf("%w; run it by hand to see why", err)
}

// output keeps what a program prints, and ends the program when that is too much. The buffer is not
// embedded: its ReadFrom would read without a limit.
type output struct {
	kept  bytes.Buffer
	limit int
	full  context.CancelCauseFunc
}

func (o *output) Write(p []byte) (int, error) {
	if o.kept.Len()+len(p) > o.limit {
		err := &durable.SizeError{Limit: int64(o.limit)}
		o.full(err)
		return 0, err
	}
	return o.kept.Write(p)
}
