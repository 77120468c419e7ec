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
	"github.com/nixbench/nixbench/deploy/remote"
)

const (
	tailLines = 40 // of the log, for the result
	busyExit  = 75 // the script's: another run goes on
	mostQuiet = 10 * time.Second
)

var errQuiet = errors.New("the node went quiet")

// watch follows one run on one node, over as many connections as it takes.
type watch struct {
	a       *Activator
	name    string
	host    Host
	id      string
	confirm time.Duration

	patience time.Duration // see there
	outlook  string        // what the node does while we do not hear from it
	silence  time.Duration // how long a start may take to its first sign

	wait    *event.Wait // for the next sign of the node
	until   time.Time   // when the node is given up, unless there is a sign before
	started bool        // the node has shown signs of the run, or may have begun it without one
	lines   int         // of the log that we have
	tail    []string
	units   map[string][]string
	last    string // the name of the last line
	node    Node   // what it said of itself at the end
}

func (a *Activator) watch(node string, h Host, id string, confirm time.Duration) *watch {
	w := &watch{a: a, name: node, host: h, id: id, confirm: confirm, patience: patience(confirm), outlook: "its switch goes on", silence: time.Minute}
	if confirm > 0 {
		w.outlook = "it rolls back unless confirmed"
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
// confirmation or is over. When the connection is lost or the node goes quiet, as it
// will when a switch touches the network, follow goes on over another
// connection. With fresh, the first one is a new one, too.
func (w *watch) follow(ctx context.Context, fresh bool, command ...string) error {
	w.until = time.Now().Add(w.patience)
	w.wait = w.a.Send.Wait(event.Event{Node: w.name, Phase: event.Activate, Text: "the node to take up the command " + command[0], Until: w.until})
	defer w.wait.End()
	again := command
	if command[0] == "start" {
		again = []string{"follow", w.id}
	} else {
		w.started = true
	}
	for {
		err := w.attach(ctx, fresh, command...)
		if errors.Is(err, errQuiet) { // a start that hung may have begun the run, or go on after it was ended
			w.started = true
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		if err, final := w.final(err); final {
			return err
		}
		if !time.Now().Before(w.until) {
			return &stepError{w.name, "activate", err}
		}
		w.wait.Change("unreachable; "+w.outlook, w.until)
		fresh, command = true, again
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// answer logs in over a new connection each time that the run waits for it: after
// the switch, and once more when what it has started has stayed up.
func (w *watch) answer(ctx context.Context) error {
	answers := map[string]string{phaseWaiting: "confirm", phaseConfirmed: "confirm-again"}
	for w.run().awaitsConfirmation() {
		if err := w.follow(ctx, true, answers[w.run().phase], w.id); err != nil {
			return err
		}
	}
	return nil
}

// sign notes that the node has said something about the run.
func (w *watch) sign() {
	w.started, w.until = true, time.Now().Add(w.patience)
	w.wait.Restart("no sign of the node; "+w.outlook, w.until)
}

// final reports whether it is no use to try again, and says so in our words. Once a
// run has begun, a node that lets nobody in may do so again when it has gone back.
func (w *watch) final(err error) (error, bool) {
	var failed *remote.RunError
	var lost *remote.LostError
	if errors.As(err, &failed) && failed.ExitStatus == busyExit {
		return &BusyError{Node: w.name}, true
	}
	answered := errors.As(err, &failed) && failed.Signal == ""
	if answered || !w.started && !errors.As(err, &lost) && !errors.Is(err, errQuiet) {
		return &stepError{w.name, "activate", err}, true
	}
	return err, false
}

// attach is one command over one connection.
func (w *watch) attach(ctx context.Context, fresh bool, command ...string) error {
	connect := w.host.Conn
	if fresh {
		// One attempt must not eat the time of all, and the last one ends with that.
		limit := min(mostQuiet, max(time.Second, time.Until(w.until))).Round(100 * time.Millisecond)
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
	limit := mostQuiet
	if command[0] == "start" { // sudo may ask for a password first, and systemd take its time
		limit = w.silence
	}
	var begun atomic.Bool // so that the command only follows the run
	begun.Store(command[0] != "start")
	quiet := time.AfterFunc(limit, func() {
		cancel(errQuiet)
		if begun.Load() { // nothing has to be ended on the node, and the time to confirm passes
			conn.Close()
		}
	})
	defer quiet.Stop()
	p := newNodeParser()
	w.units = map[string][]string{}
	run := read
	if command[0] == "start" {
		run = stored
	}
	err = run(ctx, conn, func(name, value string) {
		quiet.Reset(w.quiet())
		begun.Store(true)
		w.sign()
		w.line(p, name, value)
	}, command...)
	if err != nil && errors.Is(context.Cause(ctx), errQuiet) {
		// It may be dead without a sign of that. Whoever wants a connection gets another. It is closed
		// after run has returned: run ends the command over this connection.
		conn.Close()
		return fmt.Errorf("%s: %s: %w", w.name, nameOf(command), errQuiet)
	}
	if err != nil {
		return err
	}
	w.node, err = p.done()
	return err
}

func (w *watch) line(p *nodeParser, name, value string) {
	if name == continuedLine {
		if w.last == "log" {
			w.log(value)
		}
		return
	}
	w.last = name
	switch name {
	case "log":
		w.lines++ // a piece of one is none: the node counts its own lines
		w.log(value)
	case "unit":
		unit, line, _ := strings.Cut(value, " ")
		w.units[unit] = append(w.units[unit], line)
	default:
		p.line(name, value)
	}
}

func (w *watch) log(text string) {
	if w.tail = append(w.tail, text); len(w.tail) > tailLines {
		w.tail = w.tail[1:]
	}
	w.a.send(w.name, event.NodeLog, event.Activate, text)
}

// quiet is how long a node that says something every second may say nothing.
func (w *watch) quiet() time.Duration {
	if w.confirm == 0 {
		return mostQuiet
	}
	return min(mostQuiet, max(3*time.Second, w.confirm/4))
}
