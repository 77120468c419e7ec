package activate

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote"
)

const (
	tailLines  = 40 // number of log lines kept for the result
	busyExit   = 75 // exit status of the script if another run is active
	maxSilence = 10 * time.Second
)

var errSilent = errors.New("no output from the node")

// watch follows one run on one node. It reconnects as often as necessary.
type watch struct {
	a       *Activator
	name    string
	host    Host
	id      string
	confirm time.Duration

	patience  time.Duration // how long the node may be unreachable, see patience
	meanwhile string        // what an unreachable node does, for messages
	silence   time.Duration // how long a start may take until its first output
	slowness  int           // number of attempts in a row that ended without output; see attemptLimit

	wait    *event.Wait // the reported wait for output of the node
	until   time.Time   // when the node is given up; each output extends it
	started bool        // output of the run was received, or the run may have begun without output
	lines   int         // number of received log lines
	tail    []string
	units   map[string][]string
	last    string // name of the last received line
	node    Node   // the node's state as printed at the end
}

func (a *Activator) watch(node string, h Host, id string, confirm time.Duration) *watch {
	w := &watch{a: a, name: node, host: h, id: id, confirm: confirm, patience: patience(confirm), meanwhile: "its switch continues", silence: time.Minute}
	if confirm > 0 {
		w.meanwhile = "it rolls back unless confirmed"
	}
	return w
}

func (w *watch) run() Run {
	if w.node.Last == nil {
		return Run{}
	}
	return *w.node.Last
}

// follow runs a command of the script that follows the run, until the run waits for a
// confirmation or has ended. When the connection is lost or the node is silent, as during a
// network change, follow continues over a new connection. If fresh is set, the first
// connection is also a new one.
func (w *watch) follow(ctx context.Context, fresh bool, command ...string) error {
	w.until = time.Now().Add(w.patience)
	w.wait = w.a.Send.Wait(event.Event{Node: w.name, Phase: event.Activate, Text: "the node to start the command " + command[0], Until: w.until})
	defer w.wait.End()
	again := command
	if command[0] == "start" {
		again = []string{"follow", w.id}
	} else {
		w.started = true
	}
	for {
		err := w.attach(ctx, fresh, command...)
		if errors.Is(err, errSilent) { // a start that hung may have begun the run, or go on after it was ended
			w.started = true
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		if err, final := w.isFinal(err); final {
			return err
		}
		if !time.Now().Before(w.until) {
			return &stepError{w.name, "activate", err}
		}
		w.wait.Change("unreachable; "+w.meanwhile, w.until)
		w.slowness++
		fresh, command = true, again
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// confirmRun confirms the run over a new connection each time that it waits for that: after
// the switch, and again when the started services have stayed active.
func (w *watch) confirmRun(ctx context.Context) error {
	answers := map[string]string{phaseWaiting: "confirm", phaseConfirmed: "confirm-again"}
	for w.run().isAwaitingConfirmation() {
		if err := w.follow(ctx, true, answers[w.run().phase], w.id); err != nil {
			return err
		}
	}
	return nil
}

// noteSign extends the time limit, because output of the run was received.
func (w *watch) noteSign() {
	w.started, w.until, w.slowness = true, time.Now().Add(w.patience), 0
	w.wait.Restart("no output from the node; "+w.meanwhile, w.until)
}

// isFinal reports whether a retry is useless, and returns the error to report. After the run has
// started, failed logins are retried: the node may accept logins again after its rollback.
func (w *watch) isFinal(err error) (error, bool) {
	var failed *remote.RunError
	var lost *remote.LostError
	if errors.As(err, &failed) && failed.ExitStatus == busyExit {
		return &BusyError{Node: w.name}, true
	}
	answered := errors.As(err, &failed) && failed.Signal == ""
	if answered || !w.started && !errors.As(err, &lost) && !errors.Is(err, errSilent) {
		return &stepError{w.name, "activate", err}, true
	}
	return err, false
}

// attach runs one command over one connection.
func (w *watch) attach(ctx context.Context, fresh bool, command ...string) error {
	connect := w.host.Conn
	if fresh {
		// Limit each attempt, so that several fit into the time until w.until.
		limit := min(w.attemptLimit(), max(time.Second, time.Until(w.until))).Round(100 * time.Millisecond)
		limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v", limit))
		defer cancel()
		connect = func(context.Context) (*remote.Conn, error) { return w.host.Fresh(limited) }
	}
	conn, err := connect(ctx)
	if err != nil {
		return err
	}
	if fresh {
		defer conn.Close()
	}
	if command[0] != "start" {
		command = append(command[:2:2], strconv.Itoa(w.lines))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := w.attemptLimit()
	if command[0] == "start" { // sudo may ask for a password, and systemd may be slow
		limit = w.silence
	}
	var begun atomic.Bool // so that the command only follows the run
	begun.Store(command[0] != "start")
	quiet := time.AfterFunc(limit, func() {
		cancel(errSilent)
		if begun.Load() { // no command has to be ended on the node, and the time to confirm passes
			conn.Close()
		}
	})
	defer quiet.Stop()
	p := newNodeParser()
	w.units = map[string][]string{}
	run := runFromStdin
	if command[0] == "start" {
		run = runFromFile
	}
	err = run(ctx, conn, func(name, value string) {
		quiet.Reset(w.silenceLimit())
		begun.Store(true)
		w.noteSign()
		w.handleLine(p, name, value)
	}, command...)
	if err != nil && errors.Is(context.Cause(ctx), errSilent) {
		// The connection may be dead without an error. Close it, so that the host opens another one, but
		// only after run has returned: run ends the command over this connection.
		conn.Close()
		return failure.On(w.name, fmt.Errorf("%s: %w", commandName(command), errSilent))
	}
	if err != nil {
		return err
	}
	w.node, err = p.finish()
	return err
}

func (w *watch) handleLine(p *nodeParser, name, value string) {
	if name == continuedLine {
		if w.last == "log" {
			w.appendLog(value)
		}
		return
	}
	w.last = name
	switch name {
	case "log":
		w.lines++ // continuations do not count: the number must match the node's count of lines
		w.appendLog(value)
	case "unit":
		unit, line, _ := strings.Cut(value, " ")
		w.units[unit] = append(w.units[unit], line)
	default:
		p.handleLine(name, value)
	}
}

func (w *watch) appendLog(text string) {
	if w.tail = append(w.tail, text); len(w.tail) > tailLines {
		w.tail = w.tail[1:]
	}
	w.a.send(w.name, event.NodeLog, event.Activate, text)
}

// attemptLimit is how long a login, and then the first output, may take. Each attempt that ends
// without output doubles it: an emulated machine on a busy host answers, but late, and each
// attempt that is broken off costs it another login. The confirm time bounds it, so that several
// attempts fit into that time.
func (w *watch) attemptLimit() time.Duration {
	confirm := w.confirm
	if confirm == 0 {
		confirm = 5 * time.Minute
	}
	return max(maxSilence, min(maxSilence<<min(w.slowness, 4), confirm/4))
}

// silenceLimit is how long the node may print nothing. While a run is followed, it prints a line
// every second.
func (w *watch) silenceLimit() time.Duration {
	if w.confirm == 0 {
		return maxSilence
	}
	return min(maxSilence, max(3*time.Second, w.confirm/4))
}
