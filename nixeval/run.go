package nixeval

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Command is a program to run, without a terminal.
type Command struct {
	Argv   []string
	Stderr func(line string) // called for each line of stderr, in order
	// Disposable says that nothing is lost if it is killed. An evaluation is: in a
	// loop it does not listen to anything less.
	Disposable bool
}

// Runner runs a command to its end and returns its stdout. Cancelling ctx ends the
// command and everything that it started. It is the one way in which this package
// starts programs, so that tests can see and replace all of them.
type Runner func(ctx context.Context, c Command) (stdout []byte, err error)

// How long a cancelled program has for putting its things in order.
const (
	exitGrace       = 5 * time.Second
	disposableGrace = 300 * time.Millisecond
)

// ErrNoNix says that there is no Nix on this machine.
var ErrNoNix = errors.New("nix is not installed, or not on PATH")

// Exec is the real Runner.
func Exec(ctx context.Context, c Command) ([]byte, error) {
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Env = append(os.Environ(), "PAGER=cat", "NIX_PAGER=cat") // some Nix commands page even without a terminal
	// A session of its own: Ctrl-C on the terminal reaches us alone, and we end the
	// whole group. And without a terminal, what would ask there for a password fails
	// with a message, where in the background it would be stopped for good. Should we
	// be killed ourselves, the kernel ends Nix for us.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = exitGrace
	if c.Disposable {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
		cmd.WaitDelay = disposableGrace
	}
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	lines := &lineWriter{each: c.Stderr}
	cmd.Stderr = lines
	err := cmd.Run()
	lines.flush()
	if cmd.Process != nil && ctx.Err() != nil {
		// Nobody outlives the wait: what ignored SIGTERM gets SIGKILL.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, exec.ErrWaitDelay):
		err = nil // it is done; something that it left behind keeps stderr open
	case errors.Is(err, exec.ErrNotFound):
		return nil, fmt.Errorf("%s: %w", c.Argv[0], ErrNoNix)
	}
	return stdout.Bytes(), err
}

// maxLine is what is kept of a line: a trace or a build can print one without an end.
const maxLine = 1 << 20

// lineWriter cuts what is written to it into lines. A line that is too long is cut off.
type lineWriter struct {
	each func(string)
	rest []byte
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		i := bytes.IndexByte(w.rest, '\n')
		if i < 0 {
			w.rest = w.rest[:min(len(w.rest), maxLine)]
			return len(p), nil
		}
		w.line(w.rest[:min(i, maxLine)])
		w.rest = w.rest[i+1:]
	}
}

func (w *lineWriter) flush() {
	if len(w.rest) > 0 {
		w.line(w.rest)
		w.rest = nil
	}
}

func (w *lineWriter) line(b []byte) {
	if w.each != nil {
		w.each(strings.TrimSuffix(string(b), "\r"))
	}
}

var _ io.Writer = (*lineWriter)(nil)
