package remote

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote/internal/shell"
)

const (
	stderrTail = 4 << 10  // how much of stderr an error carries
	maxOutput  = 64 << 20 // what Output keeps of stdout

	// After Ctrl-C both together usually take less than a second on a near network.
	termGrace = 400 * time.Millisecond // how long a cancelled command may take to end after SIGTERM
	killGrace = time.Second            // how long the connection may take to have it killed
)

// Cmd is a command for a node. Like os/exec, it is a program with arguments
// and no shell: for a shell's features, run {"sh", "-c", script, "sh", arg…}.
//
// Argv and Env can be seen by every user of the node: secrets go to Stdin.
type Cmd struct {
	Argv   []string
	Name   string    // for errors, in place of an Argv that is a script; may be empty
	Env    []string  // NAME=value, added to the environment that sshd gives
	Stdin  io.Reader // nil: empty
	Stdout io.Writer // nil: discarded
	Stderr io.Writer // nil: only its tail is kept, for the error
	Sudo   bool      // as root: with the escalation command, unless the user is root
}

// String returns the command as it is shown in errors.
func (cmd Cmd) String() string {
	if cmd.Name != "" {
		return cmd.Name
	}
	return strings.Join(cmd.Argv, " ")
}

// Output runs a command and returns its stdout. A command that prints more than 64 MiB is ended,
// and that is the error.
func (c *Conn) Output(ctx context.Context, cmd Cmd) ([]byte, error) {
	out := &durable.Buffer{Limit: maxOutput}
	cmd.Stdout = out
	err := c.Run(ctx, cmd)
	return out.Bytes(), err
}

// Run runs a command and waits for it to end. The error is a *RunError if the
// command failed, an *EscalationError if it could not become root, and a
// *LostError if the connection broke, in which case it may still run.
//
// When ctx ends, the command is ended too: with TERM, and after half a second
// with KILL. Run then returns after another second at most. A Stdin that blocks
// in Read is left behind, as nothing can interrupt it.
//
// At most eight commands run at once; further ones wait.
func (c *Conn) Run(ctx context.Context, cmd Cmd) error {
	if err := cmd.validate(); err != nil {
		return failure.On(c.cfg.Node, err)
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return c.newCancelError(ctx, cmd)
	}
	return c.run(ctx, cmd, true)
}

func (cmd Cmd) validate() error {
	if err := shell.Check(cmd.Argv); err != nil {
		return fmt.Errorf("cannot run %q: %w", cmd.Argv, err)
	}
	for _, e := range cmd.Env {
		name, _, ok := strings.Cut(e, "=")
		if !ok || name == "" || name[0] == '-' || strings.IndexByte(e, 0) >= 0 {
			return fmt.Errorf("cannot run %q: environment needs NAME=value", cmd.Argv)
		}
	}
	return nil
}

// cancelled returns why a command was ended or never started.
func (c *Conn) newCancelError(ctx context.Context, cmd Cmd) error {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return &TimeoutError{Node: c.cfg.Node, Addr: c.cfg.Addr(), Command: cmd.String(), Err: context.Cause(ctx)}
	}
	return failure.On(c.cfg.Node, fmt.Errorf("%s on %s: %w", cmd, c.cfg.Addr(), context.Cause(ctx)))
}

// escalates reports whether cmd goes through the escalation command.
func (c *Conn) needsEscalation(cmd Cmd) bool {
	return cmd.Sudo && c.cfg.User != "root" && len(c.cfg.Escalation) > 0
}

// running is the state of one running command.
type runningCommand struct {
	conn    *Conn
	cmd     Cmd
	session *ssh.Session
	marks   *markWriter
	tail    *tailBuffer
	started chan struct{} // the command itself has started and owns stdin
	leader  chan struct{} // pids holds the first process, the group's leader
	prompts chan struct{} // sudo asks for a password
	ended   chan struct{} // the session has ended
	first   string        // the process id announced with leader
	second  string        // the process id announced with started
	mayAsk  bool          // the user may be asked for an unknown password
}

// run runs a command without taking a slot. With stop, a cancelled command's
// processes are ended over a session of their own.
func (c *Conn) run(ctx context.Context, cmd Cmd, stop bool) error {
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	session, err := c.openSession(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return c.newCancelError(ctx, cmd)
		}
		return err
	}
	defer session.Close()
	stdin, err := session.StdinPipe()
	if err != nil {
		return c.explainError(err)
	}
	r := &runningCommand{
		conn: c, cmd: cmd, session: session, tail: newTail(stderrTail), mayAsk: stop,
		started: make(chan struct{}), leader: make(chan struct{}), prompts: make(chan struct{}, 8), ended: make(chan struct{}),
	}
	stdout, stderr := serializeWriters(cmd.Stdout, cmd.Stderr)
	out, errs := newSink(stdout, abort), newSink(stderr, abort)
	defer out.discardRest()
	defer errs.discardRest()
	session.Stdout = out
	mark := "nixbench-" + rand.Text() + "-"
	r.marks = &markWriter{prefix: mark, onMark: r.handleMark, w: io.MultiWriter(r.tail, errs)}
	session.Stderr = r.marks

	ended := make(chan error, 1)
	go func() {
		err := session.Start(shell.Line(r.wrappedArgv(mark)))
		if err == nil {
			err = session.Wait()
		}
		ended <- err
	}()
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		r.writeStdin(ctx, stdin, abort)
	}()

	select {
	case err = <-ended:
	case <-c.done:
		err = c.err
	case <-ctx.Done():
		if stop {
			r.stopProcesses(ended)
		}
		err = nil
	}
	close(r.ended)
	session.Close()
	select { // so that Stdin is normally not read after Run
	case <-fed:
	case <-time.After(50 * time.Millisecond):
	}
	if ctx.Err() == nil {
		return r.convertError(err)
	}
	if refused := (*EscalationError)(nil); errors.As(context.Cause(ctx), &refused) {
		return refused
	}
	return c.newCancelError(ctx, cmd)
}

// argv is what the login shell becomes: the command behind an announcement,
// or the escalation command between two.
func (r *runningCommand) wrappedArgv(mark string) []string {
	argv := r.cmd.Argv
	if len(r.cmd.Env) > 0 {
		argv = slices.Concat([]string{"env"}, r.cmd.Env, argv)
	}
	argv = shell.Announce(mark+runMark, argv)
	if !r.conn.needsEscalation(r.cmd) {
		return argv
	}
	escalation := r.conn.cfg.Escalation
	if isSudo(escalation) {
		escalation = sudoCommand(escalation, mark+passMark, r.conn.opts.Prompt != nil)
	}
	return shell.Announce(mark+pidMark, slices.Concat(escalation, argv))
}

// mark is called for every mark on stderr, in order, by one goroutine.
func (r *runningCommand) handleMark(kind, pid string) {
	switch kind {
	case passMark:
		select {
		case r.prompts <- struct{}{}:
		default:
		}
		return
	case pidMark:
		r.first = pid
		close(r.leader)
	case runMark:
		if r.second = pid; r.first == "" {
			r.first = pid
			close(r.leader)
		}
		close(r.started)
	}
}

// feed writes stdin: first sudo's password, then the command's input.
func (r *runningCommand) writeStdin(ctx context.Context, stdin io.WriteCloser, abort context.CancelCauseFunc) {
	defer stdin.Close()
	if r.conn.needsEscalation(r.cmd) {
		if err := r.answerPrompts(ctx, stdin); err != nil {
			abort(err)
			return
		}
		select {
		case <-r.started:
		default:
			return
		}
	}
	if r.cmd.Stdin == nil {
		return
	}
	// A failed write is ignored, since a command may end without reading everything. A
	// failed read is an error, since it must not look like the end of the input.
	source := &recordingReader{r: r.cmd.Stdin}
	if frugalCopy(stdin, source); source.err != nil {
		abort(fmt.Errorf("read its stdin: %w", source.err))
	}
}

// result converts the session's error to one of this package's errors.
func (r *runningCommand) convertError(err error) error {
	c := r.conn
	r.marks.flush()
	var exit *ssh.ExitError
	var missing *ssh.ExitMissingError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit):
		if c.needsEscalation(r.cmd) && !r.hasStarted() {
			return r.newEscalationError()
		}
		failed := &RunError{Node: c.cfg.Node, Host: c.cfg.Addr(), Argv: r.cmd.Argv, Name: r.cmd.Name,
			ExitStatus: exit.ExitStatus(), Signal: exit.Signal(), Stderr: r.tail.String()}
		if failed.Signal != "" {
			failed.ExitStatus = -1
		}
		return failed
	case errors.As(err, &missing):
		if err := c.explainError(err); !errors.As(err, &missing) {
			return err
		}
		return failure.On(c.cfg.Node, fmt.Errorf("%s on %s: the server ended the session without an exit status: %w",
			r.cmd, c.cfg.Addr(), err))
	}
	if err = c.explainError(err); errors.Is(err, c.Err()) {
		return err
	}
	return failure.On(c.cfg.Node, fmt.Errorf("%s on %s: %w", r.cmd, c.cfg.Addr(), err))
}

func (r *runningCommand) hasStarted() bool {
	select {
	case <-r.started:
		return true
	default:
		return false
	}
}

func isSudo(escalation []string) bool {
	return len(escalation) > 0 && path.Base(escalation[0]) == "sudo"
}
