package secrets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/nixeval"
)

const keyTimeout = 5 * time.Minute // time limit of a keyCommand, which may ask the user for a passphrase

// runProgram returns what a program on this computer prints to stdout. The program has no stdin; a program that asks for a passphrase
// opens the terminal itself. The program's stderr is discarded: it could contain a part of a secret, and errors are recorded.
func runProgram(ctx context.Context, argv ...string) ([]byte, error) {
	if _, err := exec.LookPath(argv[0]); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, keyTimeout, fmt.Errorf("it did not end within %v", keyTimeout))
	defer cancel()
	out, err := nixeval.Exec(ctx, nixeval.Command{Argv: argv, Disposable: true, Terminal: hasTerminal(), MaxOutput: durable.KeySize})
	if err != nil && ctx.Err() == nil && !errors.As(err, new(*durable.SizeError)) {
		err = fmt.Errorf("%w; run it by hand to see why", err)
	}
	return out, err
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
