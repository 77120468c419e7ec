package nixeval

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/nixbench/nixbench/deploy/child"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/lines"
)

// Command is a program on this machine.
type Command struct {
	Argv   []string
	Env    []string          // added to the environment of nixbench
	Stderr func(line string) // called for each line of stderr, in order
	// Disposable means that the program is killed soon after SIGTERM if it does not end. It is set for evaluations: an evaluation
	// in an endless loop reacts only to SIGKILL.
	Disposable bool
	// Terminal leaves the program in the process group of nixbench. A program in another group cannot read from the terminal. Ctrl-C
	// then signals the program, too.
	Terminal  bool
	MaxOutput int // maximum size of stdout in bytes; a program that prints more is ended; 0: no limit
}

// Runner runs a command until it ends, and returns its stdout. If ctx is cancelled, the Runner ends the command and all its child
// processes. This package starts all programs except the REPL by a Runner, so that tests can observe and replace the programs.
type Runner func(ctx context.Context, c Command) (stdout []byte, err error)

// Time between SIGTERM and SIGKILL when a command is cancelled: exitGrace in general, and a shorter time for a disposable command.
const (
	exitGrace       = 5 * time.Second
	disposableGrace = 300 * time.Millisecond
)

// ErrNoNix means that Nix is not installed on this machine.
var ErrNoNix = failure.WithHint(errors.New("nix is not installed, or not on PATH"), "install Nix 2.18 or later, see https://nixos.org/download")

// newProcess returns a process for the command, which has not started. Flush the Writer when the process has ended.
//
// The process runs in a new session. Then Ctrl-C on the terminal signals only nixbench, which ends the program's process group. A
// program in a new session has no terminal, so one that asks for a password fails with a message. If nixbench is killed, Linux ends
// the program (child.SetDeathSignal).
func newProcess(ctx context.Context, c Command) (*exec.Cmd, *lines.Writer) {
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Env = append(append(os.Environ(), c.Env...), "PAGER=cat", "NIX_PAGER=cat") // some Nix commands start a pager even without a terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	child.SetDeathSignal(cmd.SysProcAttr, syscall.SIGTERM)
	cmd.WaitDelay = exitGrace
	stderr := &lines.Writer{Each: c.Stderr}
	if c.Stderr != nil { // otherwise a child process that keeps stderr open, such as an agent, would delay the end
		cmd.Stderr = stderr
	}
	return cmd, stderr
}

// Exec is the Runner that starts programs on this machine.
func Exec(ctx context.Context, c Command) ([]byte, error) {
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	cmd, stderr := newProcess(ctx, c)
	group := -1 // the sign of the process id for kill: -1 signals the process group of the program, 1 only the program
	if c.Terminal {
		group, cmd.SysProcAttr.Setsid = 1, false
	}
	cmd.Cancel = func() error { return syscall.Kill(group*cmd.Process.Pid, syscall.SIGTERM) }
	if c.Disposable {
		cmd.WaitDelay = disposableGrace
	}
	if c.Disposable && !c.Terminal { // a program at the terminal restores the echo of what the user types
		child.SetDeathSignal(cmd.SysProcAttr, syscall.SIGKILL)
	}
	stdout := &limitedOutput{max: c.MaxOutput, abort: abort}
	cmd.Stdout = stdout
	err := cmd.Run()
	stderr.Flush()
	if cmd.Process != nil && ctx.Err() != nil && !c.Terminal {
		// The program has ended. Kill those of its child processes that have ignored SIGTERM.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, exec.ErrWaitDelay) && c.MaxOutput == 0:
		err = nil // not a failure: the program has ended, and only a child process of it keeps stderr open; with MaxOutput, it may be stdout, and the output incomplete
	case errors.Is(err, exec.ErrNotFound):
		return nil, fmt.Errorf("%s: %w", c.Argv[0], ErrNoNix)
	}
	return stdout.kept.Bytes(), err
}

// limitedOutput keeps the output of a program, and ends the program if the output exceeds the limit.
type limitedOutput struct {
	kept  bytes.Buffer // not embedded: its ReadFrom would read without a limit
	max   int
	abort context.CancelCauseFunc
}

func (o *limitedOutput) Write(p []byte) (int, error) {
	if o.max > 0 && o.kept.Len()+len(p) > o.max {
		err := fmt.Errorf("its output: %w", &durable.SizeError{Limit: int64(o.max)})
		o.abort(err)
		return 0, err
	}
	return o.kept.Write(p)
}

// StartPipe starts a program that reads requests from its stdin and writes replies to its stdout. The returned connection writes
// to the program's stdin and reads from its stdout. Close closes both and waits until the program has ended; after a second it
// kills the program. When ctx is cancelled, the program is ended.
func StartPipe(ctx context.Context, c Command) (io.ReadWriteCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd, stderr := newProcess(ctx, c)
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	err := errors.Join(inErr, outErr)
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		if errors.Is(err, exec.ErrNotFound) {
			err = fmt.Errorf("%s: %w", c.Argv[0], ErrNoNix)
		}
		return nil, err
	}
	return &pipe{Reader: out, Writer: in, end: sync.OnceValue(func() error {
		in.Close()
		out.Close()
		defer time.AfterFunc(time.Second, cancel).Stop()
		defer cancel()
		cmd.Wait() // the exit status of the program does not matter, because the protocol reports errors
		stderr.Flush()
		return nil
	})}, nil
}

type pipe struct {
	io.Reader
	io.Writer
	end func() error
}

func (p *pipe) Close() error { return p.end() }
