package nixeval

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/nixbench/nixbench/deploy/child"
)

// Command is a program that runs without a terminal.
type Command struct {
	Argv   []string
	Stderr func(line string) // called for each line of stderr, in order
	// Disposable means that the program is killed soon after SIGTERM if it does not end. It is set for evaluations: an evaluation
	// in an endless loop reacts only to SIGKILL.
	Disposable bool
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
var ErrNoNix = errors.New("nix is not installed, or not on PATH")

// newProcess returns a process for the command, which has not started. Flush the lineWriter when the process has ended.
//
// The process runs in a new session. Then Ctrl-C on the terminal signals only nixbench, which ends the program's process group. A
// program in a new session has no terminal, so one that asks for a password fails with a message. If nixbench is killed, Linux ends
// the program (child.SetDeathSignal).
func newProcess(ctx context.Context, c Command) (*exec.Cmd, *lineWriter) {
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Env = append(os.Environ(), "PAGER=cat", "NIX_PAGER=cat") // some Nix commands start a pager even without a terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	child.SetDeathSignal(cmd.SysProcAttr, syscall.SIGTERM)
	cmd.WaitDelay = exitGrace
	lines := &lineWriter{each: c.Stderr}
	cmd.Stderr = lines
	return cmd, lines
}

// Exec is the Runner that starts programs on this machine.
func Exec(ctx context.Context, c Command) ([]byte, error) {
	cmd, lines := newProcess(ctx, c)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	if c.Disposable {
		child.SetDeathSignal(cmd.SysProcAttr, syscall.SIGKILL)
		cmd.WaitDelay = disposableGrace
	}
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	err := cmd.Run()
	lines.flush()
	if cmd.Process != nil && ctx.Err() != nil {
		// The program has ended. Kill those of its child processes that have ignored SIGTERM.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, exec.ErrWaitDelay):
		err = nil // not a failure: the program has ended, and only a child process of it keeps stderr open
	case errors.Is(err, exec.ErrNotFound):
		return nil, fmt.Errorf("%s: %w", c.Argv[0], ErrNoNix)
	}
	return stdout.Bytes(), err
}

// maxLine is the maximum number of bytes of a line. Longer lines are truncated, because a trace or
// a build can print an endless line.
const maxLine = 1 << 20

// lineWriter calls each for every line that is written to it. Call flush at the end, for a last line without a newline.
type lineWriter struct {
	each func(string)
	rest []byte // unfinished last line
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		i := bytes.IndexByte(w.rest, '\n')
		if i < 0 {
			w.rest = w.rest[:min(len(w.rest), maxLine)]
			return len(p), nil
		}
		w.emit(w.rest[:min(i, maxLine)])
		w.rest = w.rest[i+1:]
	}
}

func (w *lineWriter) flush() {
	if len(w.rest) > 0 {
		w.emit(w.rest)
		w.rest = nil
	}
}

func (w *lineWriter) emit(b []byte) {
	if w.each != nil {
		w.each(strings.TrimSuffix(string(b), "\r"))
	}
}
