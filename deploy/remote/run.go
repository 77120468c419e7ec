package remote

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote/internal/shell"
)

const (
	stderrTail = 4 << 10 // bytes of stderr that an error contains
	maxOutput  = 4 << 20 // default of Cmd.MaxOutput

	commandTimeout = 10 * time.Minute // time limit of a command whose context has no deadline

	// A command that is cancelled gets SIGTERM first, and SIGKILL if it does not end. On a fast network, the
	// cancellation usually takes less than a second in total.
	termGrace = 400 * time.Millisecond // time limit of a cancelled command to end after SIGTERM
	killGrace = 3 * time.Second        // time limit for sending SIGKILL over the connection
)

// Cmd is a command for a node. As with os/exec, no shell interprets the arguments: for a
// shell's features, run {"sh", "-c", script, "sh", arg…}.
//
// Argv can be seen by every user of the node: secrets go to Stdin.
type Cmd struct {
	Argv   []string
	Name   string    // replaces Argv in errors, for example if Argv contains a script; may be empty
	Stdin  io.Reader // nil: empty
	Stdout io.Writer // nil: discarded; Stdout and Stderr are written to at the same time
	Stderr io.Writer // nil: stderr is discarded; an error contains the end of it in any case
	Sudo   bool      // run as root: with the escalation command, unless the login user is root

	// A command that exceeds a limit is ended. MaxOutput is the maximal number of bytes of stdout and stderr together; 0 means 4 MiB. If
	// the context of the command has no deadline, the command may take 10 minutes.
	MaxOutput int64
	Unlimited bool // neither limit applies: the user reads the output and decides when the command ends
}

// String returns the text of the command for errors, in one line. Of a script with several lines, it returns the beginning.
func (cmd Cmd) String() string {
	if cmd.Name != "" {
		return cmd.Name
	}
	text := strings.Join(cmd.Argv, " ")
	if strings.Contains(text, "\n") {
		words := []rune(strings.Join(strings.Fields(text), " "))
		text = string(words[:min(60, len(words))]) + "…"
	}
	return text
}

func (c *Conn) Output(ctx context.Context, cmd Cmd) ([]byte, error) {
	var out bytes.Buffer
	cmd.Stdout = &out
	err := c.Run(ctx, cmd)
	return out.Bytes(), err
}

// Run runs a command and waits for it to end. The error is a *RunError if the command failed, an *EscalationError if the command could
// not become root, an *OutputError or a *TimeoutError if it has exceeded a limit of cmd, and a *LostError if the connection was lost.
// After a *LostError the command may still run.
//
// When ctx ends, Run ends the command with SIGTERM, and 0.4 seconds later with SIGKILL. Run then returns after another three seconds
// at most, even if a Read of Stdin blocks: that Read cannot be interrupted and continues in its goroutine.
//
// At most eight commands run at the same time on a connection; further commands wait.
func (c *Conn) Run(ctx context.Context, cmd Cmd) error {
	if err := shell.Check(cmd.Argv); err != nil {
		return failure.On(c.cfg.Node, fmt.Errorf("cannot run %q: %w", cmd.Argv, err))
	}
	if _, limited := ctx.Deadline(); !limited && !cmd.Unlimited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, commandTimeout)
		defer cancel()
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-c.ctx.Done():
		return c.Err()
	case <-ctx.Done():
		return c.newCancelError(cmd, context.Cause(ctx))
	}
	return c.runUncounted(ctx, cmd, true)
}

// newCancelError returns the error of a command that was ended, or not started, because its context has ended with this cause.
func (c *Conn) newCancelError(cmd Cmd, cause error) error {
	if size := (*durable.SizeError)(nil); errors.As(cause, &size) {
		return &OutputError{failure.About{Node: c.cfg.Node, Text: fmt.Sprintf("%s on %s: its output: %v", cmd, c.cfg.Addr(), size), Err: size,
			Advice: "no command of a working node prints so much: check whether the node is compromised"}}
	}
	if errors.Is(cause, context.DeadlineExceeded) {
		return &TimeoutError{failure.About{Node: c.cfg.Node, Text: fmt.Sprintf("%s on %s: no answer in time: %v", cmd, c.cfg.Addr(), cause), Err: cause,
			Advice: "the node accepts connections, but its commands do not end in time: check its load, memory and disk, then run the command again"}}
	}
	return failure.On(c.cfg.Node, fmt.Errorf("%s on %s: %w", cmd, c.cfg.Addr(), cause))
}

// needsEscalation reports whether cmd needs the escalation command, such as sudo, to run as root.
func (c *Conn) needsEscalation(cmd Cmd) bool {
	return cmd.Sudo && c.cfg.User != "root" && len(c.cfg.Escalation) > 0
}

// runningCommand is the state of one command on the node.
type runningCommand struct {
	conn    *Conn
	cmd     Cmd
	session session
	marks   [2]*markWriter // of stdout and of stderr
	tail    *tailBuffer    // the end of the command's stderr
	before  *tailBuffer    // the end of the text that was printed before the command started, such as by the login shell
	started chan struct{}  // closed when the command itself has started, not only the shell that starts it; the command then reads stdin
	leader  chan struct{}  // closed when the first process on the node, the leader of the process group, has started
	prompts chan struct{}  // receives a value each time sudo asks for the password
	ended   chan struct{}  // closed when the session has ended
	first   string         // process id of the first process; valid after leader is closed
	second  string         // process id of the command itself; valid after started is closed
	wait    *event.Wait    // reports to the user that the first process has not started yet
	mayAsk  bool           // whether Options.Prompt may ask the user for the sudo password
}

// runUncounted does what Run does, but does not count as one of the eight commands of the connection. If stop is set and ctx
// ends, runUncounted opens separate SSH sessions to end the processes of the command.
func (c *Conn) runUncounted(ctx context.Context, cmd Cmd, stop bool) error {
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	r := &runningCommand{
		conn: c, cmd: cmd, tail: newTail(stderrTail), before: newTail(stderrTail), mayAsk: stop,
		started: make(chan struct{}), leader: make(chan struct{}), prompts: make(chan struct{}, 8), ended: make(chan struct{}),
	}
	limit := &outputLimit{max: cmp.Or(cmd.MaxOutput, maxOutput)}
	if cmd.Unlimited {
		limit.max = math.MaxInt64
	}
	out, errs := newSink(cmd.Stdout, limit, abort), newSink(cmd.Stderr, limit, abort)
	defer out.discardRest()
	defer errs.discardRest()
	mark := "nixbench-" + rand.Text() + "-"
	r.marks = [2]*markWriter{newMarkWriter(mark, func(_, _ string) {}, r.before, out), newMarkWriter(mark, r.handleMark, r.before, io.MultiWriter(r.tail, errs))}
	session, err := c.openSession(ctx, r.marks[0], r.marks[1])
	if err != nil {
		if ctx.Err() != nil {
			return c.newCancelError(cmd, context.Cause(ctx))
		}
		return err
	}
	stdin, err := session.StdinPipe()
	if err != nil {
		go session.Close()
		return c.explainError(err)
	}
	r.session = session

	until, _ := ctx.Deadline()
	r.wait = c.opts.Send.Wait(event.Event{Node: c.cfg.Node, Phase: event.Connect, Text: "the login shell of " + c.cfg.User + " to start a command", Until: until})
	defer r.wait.End()
	ended, fed := r.start(ctx, r.wrappedArgv(mark), stdin, abort)
	select {
	case err = <-ended:
	case <-c.ctx.Done():
		err = c.Err()
	case <-ctx.Done():
		if stop {
			r.stopProcesses(ended)
		}
		err = nil
	}
	close(r.ended)
	closed := make(chan struct{})
	go func() { // in a goroutine, because Close blocks if the network drops all packets
		session.Close()
		<-fed
		close(closed)
	}()
	select { // wait for writeStdin, so that Stdin is normally not read after Run
	case <-closed:
	case <-time.After(50 * time.Millisecond):
	}
	if ctx.Err() == nil {
		return r.convertError(err)
	}
	return r.explainCancel(context.Cause(ctx))
}

// start starts the command, and writes its input. The channel ended receives the error of the session. The channel fed
// is closed when Stdin is not read any more.
func (r *runningCommand) start(ctx context.Context, argv []string, stdin io.WriteCloser, abort context.CancelCauseFunc) (ended chan error, fed chan struct{}) {
	ended, fed = make(chan error, 1), make(chan struct{})
	requested := make(chan struct{})
	go func() {
		err := r.session.Start(shell.Line(argv))
		close(requested)
		if err == nil {
			err = r.session.Wait()
		}
		ended <- err
	}()
	go func() {
		defer close(fed)
		select { // wait until the command was requested: sshd does not pass on an end of stdin that it receives before the request
		case <-requested:
			r.writeStdin(ctx, stdin, abort)
		case <-ctx.Done():
		case <-r.ended:
		}
	}()
	return ended, fed
}

// explainCancel returns the error of a command that was ended because its context has ended with this cause.
func (r *runningCommand) explainCancel(cause error) error {
	if refused := (*EscalationError)(nil); errors.As(cause, &refused) {
		return refused
	}
	if errors.Is(cause, context.DeadlineExceeded) && !isClosed(r.leader) {
		cause = fmt.Errorf("the login shell of %s has not started it; check its files such as .bashrc: %w", r.conn.cfg.User, cause)
	}
	return r.conn.newCancelError(r.cmd, cause)
}

// wrappedArgv returns the argv that the login shell executes: a script that prints a runMark (a line that says that the
// command starts) and then runs the command. If the command needs escalation, the login shell executes an outer script.
// The outer script prints a pidMark and runs the escalation command, such as sudo, which runs the first script.
func (r *runningCommand) wrappedArgv(mark string) []string {
	argv := shell.Announce(mark+runMark, r.cmd.Argv)
	if !r.conn.needsEscalation(r.cmd) {
		return argv
	}
	escalation := r.conn.cfg.Escalation
	if isSudo(escalation) {
		escalation = sudoCommand(escalation, mark+passMark, r.conn.opts.Prompt != nil)
	}
	return shell.Announce(mark+pidMark, slices.Concat(escalation, argv))
}

// handleMark records a mark, a line of the wrapper scripts on stderr. One goroutine calls it, in the order in which the
// marks were received. If a node sends a mark several times, only the first one is recorded.
func (r *runningCommand) handleMark(kind, pid string) {
	if kind == passMark {
		select {
		case r.prompts <- struct{}{}:
		default:
		}
		return
	}
	if r.first == "" {
		r.first = pid
		close(r.leader)
	}
	if kind == runMark { // the last mark of a command, which is about to start
		r.second = pid
		close(r.started)
	}
	r.wait.End()
}

// writeStdin writes sudo's password, if sudo asks for it, and then the command's input to the session.
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
	// If a write fails, read and discard the rest of Stdin: a command may end before it has read its whole input, and a
	// program that writes to Stdin through a pipe must not block then. If a read fails, abort the command: otherwise
	// the command would take the failed read for the end of its input.
	_, readErr, writeErr := growingCopy(stdin, r.cmd.Stdin, bigBuffer)
	if writeErr != nil {
		_, readErr, _ = growingCopy(untilClosed(r.ended), r.cmd.Stdin, bigBuffer)
	}
	if readErr != nil {
		abort(fmt.Errorf("read its stdin: %w", readErr))
	}
}

// untilClosed is a writer that discards data until the channel is closed.
type untilClosed <-chan struct{}

func (u untilClosed) Write(p []byte) (int, error) {
	select {
	case <-u:
		return 0, io.ErrClosedPipe
	default:
		return len(p), nil
	}
}

// convertError converts the session's error to one of this package's errors.
func (r *runningCommand) convertError(err error) error {
	c := r.conn
	r.marks[0].flush()
	r.marks[1].flush()
	var exit *exitError
	switch {
	case (err == nil || errors.As(err, &exit)) && !r.hasStarted():
		return r.newNotStartedError(exit)
	case err == nil:
		return nil
	case errors.As(err, &exit):
		stderr := r.tail.String()
		text := appendTail(fmt.Sprintf("%s on %s: %v", r.cmd, c.cfg.Addr(), exit), stderr)
		return &RunError{About: failure.About{Node: c.cfg.Node, Text: text}, ExitStatus: exit.status, Signal: exit.signal, Stderr: stderr}
	}
	if err = c.explainError(err); errors.Is(err, c.Err()) {
		return err
	}
	if errors.As(err, new(*ssh.ExitMissingError)) {
		err = fmt.Errorf("the server ended the session without an exit status: %w", err)
	}
	return failure.On(c.cfg.Node, fmt.Errorf("%s on %s: %w", r.cmd, c.cfg.Addr(), err))
}

func (r *runningCommand) hasStarted() bool { return isClosed(r.started) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// newNotStartedError returns the error of a session that has ended before the command itself started. exit is nil if
// the exit status of the session is 0.
func (r *runningCommand) newNotStartedError(exit *exitError) error {
	if isClosed(r.leader) {
		return r.explainRefusal()
	}
	cfg := r.conn.cfg
	text := fmt.Sprintf("%s accepts the login of %s, but runs no command: %v", cfg.Addr(), cfg.User, cmp.Or(exit, &exitError{}))
	if printed := r.before.String(); printed != "" {
		text += ": " + quoteText(printed)
	}
	return &AuthError{failure.About{Node: cfg.Node, Text: text, Advice: fmt.Sprintf(
		"check the login shell of %s on %s (users.users.%[1]s.shell), its files such as .bashrc, and the forced command of its key; or set another deployment.targetUser", cfg.User, cfg.Node)}}
}

func isSudo(escalation []string) bool {
	return len(escalation) > 0 && path.Base(escalation[0]) == "sudo"
}
