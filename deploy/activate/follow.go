package activate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote"
)

const (
	tailLines  = 40               // number of the last log lines in a Result
	busyExit   = 75               // exit status of the node's script if another activation is active on the node
	changeExit = 76               // exit status of the node's script if the node's systems differ from those that nixbench has observed
	maxSilence = 10 * time.Second // the normal time limit for output of the node and for a login

	maxRun = 2 * time.Hour // how long the client follows a run, however much the node prints
)

// stepActivate is the step in the errors of a watch.
const stepActivate = "activate"

var (
	errSilent      = errors.New("no output from the node")
	errNodeChanged = errors.New("the node's systems have changed since it was inspected")
)

// watch follows one activation on one node. run is the id of the activation. When the connection is lost, it opens a new one.
type watch struct {
	a       *Activator
	name    string
	host    Host
	id      string
	confirm time.Duration

	patience  time.Duration // how long nixbench tries to reach a node that does not answer; see computePatience
	meanwhile string        // what the node does while it is unreachable, for messages: "it rolls back unless confirmed"
	silence   time.Duration // how long the start command may take until its first output
	slowness  int           // number of consecutive attempts in which the node printed nothing; attemptLimit uses it

	wait    *event.Wait         // the wait for output of the node, as reported to the user
	until   time.Time           // the time by which the next output must arrive; each line of output moves it, up to end
	end     time.Time           // see maxRun
	started bool                // nixbench has received output of the run, or the run may have begun without output
	lines   int                 // number of received log lines
	tail    []string            // the last received log lines
	units   map[string][]string // name of a systemd unit that has failed → the last lines of its log

	afterSwitch func(context.Context) bool // see [Request.AfterSwitch]
	changed     bool                       // afterSwitch has changed the node

	checkHealth func(context.Context) error // see [Request.CheckHealth]
	unhealthy   error                       // the error of checkHealth

	loggedIn func()    // called each time that the node has accepted the first confirmation; nil: nothing to call
	node     Node      // the node's state, which the script prints at the end
	observed time.Time // when the script has printed it
}

func (a *Activator) newWatch(node string, h Host, id string, confirm time.Duration) *watch {
	w := &watch{a: a, name: node, host: h, id: id, confirm: confirm, patience: computePatience(confirm), meanwhile: "its switch continues", silence: time.Minute, end: time.Now().Add(cmp.Or(a.maxRun, maxRun))}
	if confirm > 0 {
		w.meanwhile = "it rolls back unless confirmed"
	}
	return w
}

// lastRun returns the run in the state that the node has sent last. Before the node has sent a state, it returns a zero Run.
func (w *watch) lastRun() Run {
	if w.node.Last == nil {
		return Run{}
	}
	return *w.node.Last
}

// follow runs a command of the shell script on the node that prints the output of a run. It returns when the run waits for a
// confirmation or has ended. If the connection is lost or the node prints nothing, as during a network change, follow continues
// over a new connection. If fresh is set, the first attempt also uses a new connection.
func (w *watch) follow(ctx context.Context, fresh bool, command ...string) error {
	ctx, cancel := context.WithDeadlineCause(ctx, w.end, errors.New("the run has not ended; nixbench follows a run for "+maxRun.String()+" at most"))
	defer cancel()
	w.until = time.Now().Add(w.patience)
	w.wait = w.a.Send.Wait(event.Event{Node: w.name, Phase: event.Activate, Text: "the node to start the command " + command[0], Until: w.until})
	defer func() { w.wait.End() }()
	again := command
	if command[0] == "start" {
		again = []string{"follow", w.id}
	} else {
		w.started = true
	}
	for {
		err := w.runCommand(ctx, fresh, command...)
		if errors.Is(err, errSilent) { // the start command may have begun the run on the node, or may still begin it
			w.started = true
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		if err, final := w.isFinal(err); final {
			return err
		}
		if !time.Now().Before(w.until) {
			return newStepError(w.name, stepActivate, err)
		}
		w.wait.Change("unreachable; "+w.meanwhile+": "+remote.Reason(err), w.until)
		w.slowness++
		fresh, command = true, again
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// confirmRun confirms the run each time that the run waits for a confirmation: after the switch, after the started services have
// stayed active, and after some rollbacks. It sends each confirmation over a new connection. See [Request.AfterLogin] for the
// argument afterLogin.
func (w *watch) confirmRun(ctx context.Context, afterLogin func(context.Context)) error {
	var background sync.WaitGroup
	defer background.Wait()
	if afterLogin != nil {
		w.loggedIn = sync.OnceFunc(func() { background.Go(func() { afterLogin(ctx) }) })
	}
	if w.afterSwitch != nil && w.lastRun().phase == phaseWaiting {
		w.changed = w.afterSwitch(ctx)
	}
	answers := map[string]string{phaseWaiting: "confirm", phaseConfirmed: "confirm-again", phaseReturned: "confirm-return"}
	for w.lastRun().isAwaitingConfirmation() {
		phase := w.lastRun().phase
		answer := answers[phase]
		if check := w.checkHealth; check != nil && phase == phaseConfirmed {
			w.checkHealth = nil
			if err := w.followDuring(ctx, check); err != nil {
				return err
			}
			continue // the run may have ended meanwhile
		}
		if w.unhealthy != nil && phase == phaseConfirmed {
			answer = "abort"
		}
		if err := w.follow(ctx, true, answer, w.id); err != nil {
			return err
		}
	}
	return nil
}

// followDuring calls check, and stores its error in w.unhealthy. If check takes longer than [event.Grace], followDuring follows the
// run meanwhile, so that other nixbenches see that this one has not abandoned the run. It does so over a new connection, because check
// may use all sessions of the shared connection. If the run ends meanwhile, it cancels check.
func (w *watch) followDuring(ctx context.Context, check func(context.Context) error) error {
	checking, endCheck := context.WithCancel(ctx)
	defer endCheck()
	following, endFollow := context.WithCancel(ctx)
	defer endFollow()
	checked := make(chan error, 1)
	go func() {
		checked <- check(checking)
		endFollow()
	}()
	var err error
	select {
	case <-following.Done():
	case <-time.After(event.Grace):
		if err = w.follow(following, true, "follow", w.id, "confirm-again"); following.Err() == nil { // the run has ended, or the node does not answer
			endCheck()
			<-checked
			return err
		}
	}
	w.unhealthy = <-checked
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// extendLimit moves w.until, the time by which the next output must arrive. It is called when output of the run has arrived.
func (w *watch) extendLimit() {
	w.started, w.until, w.slowness = true, time.Now().Add(min(w.patience, time.Until(w.end))), 0
	w.wait.End() // each output begins a new wait
	w.wait = w.a.Send.Wait(event.Event{Node: w.name, Phase: event.Activate, Text: "no output from the node; " + w.meanwhile, Until: w.until})
}

// isFinal reports whether a new attempt after err cannot succeed, and returns the error to report. A failed login is not final
// after the run has started, because the node may accept logins again after its rollback.
func (w *watch) isFinal(err error) (error, bool) {
	var failed *remote.RunError
	var lost *remote.LostError
	var endless *remote.OutputError
	if errors.As(err, &failed) && failed.ExitStatus == busyExit {
		return newBusyError(w.name, nil), true
	}
	if errors.As(err, &failed) && failed.ExitStatus == changeExit {
		return errNodeChanged, true
	}
	answered := errors.As(err, &failed) && failed.Signal == ""
	if isDown(err) || answered || errors.As(err, &endless) || errors.Is(err, errIncomplete) || !w.started && !errors.As(err, &lost) && !errors.Is(err, errSilent) {
		return newStepError(w.name, stepActivate, err), true
	}
	return err, false
}

// runCommand runs a command of the shell script on the node over one connection, and stores its output in w. If the node prints
// nothing for too long, the error wraps errSilent.
func (w *watch) runCommand(ctx context.Context, fresh bool, command ...string) error {
	connect := w.host.Conn
	if fresh {
		// Limit the time of each attempt, so that several attempts are possible before w.until.
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
		command = slices.Insert(slices.Clone(command), 2, strconv.Itoa(w.lines))
	}
	if command[0] == "confirm" && w.changed {
		command = append(command, "watch")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := w.attemptLimit()
	if command[0] == "start" { // a longer limit: sudo may ask for a password, and systemd may be slow
		limit = w.silence
	}
	var begun atomic.Bool // true: the node's output shows that the run has begun, and from now on the command only prints its output
	begun.Store(command[0] != "start")
	quiet := time.AfterFunc(limit, func() {
		cancel(errSilent)
		if begun.Load() { // a command that only prints the output of a run need not be ended on the node, and ending it would take time from the confirm time
			conn.Close()
		}
	})
	defer quiet.Stop()
	p := newNodeParser()
	w.units = map[string][]string{}
	err = executeScript(ctx, conn, func(line string) {
		quiet.Reset(w.silenceLimit())
		begun.Store(true)
		w.extendLimit()
		if command[0] == "confirm" && w.loggedIn != nil && strings.HasPrefix(line, "accepted=") {
			w.loggedIn()
		}
		w.handleLine(p, line)
	}, command...)
	if err != nil && errors.Is(context.Cause(ctx), errSilent) {
		// A dead connection may show no error. Close it, so that the host opens a new connection. Close it only after the command,
		// because the command is ended over this connection.
		conn.Close()
		return failure.On(w.name, fmt.Errorf("%s: %w", commandName(command), errSilent))
	}
	if err == nil {
		w.observed = time.Now()
		w.node, err = p.finishNode()
	}
	return err
}

// handleLine stores one name=value line that the shell script on the node has printed. It keeps lines of the switch's log and
// of the logs of broken systemd units itself, and passes any other line to p.
func (w *watch) handleLine(p *nodeParser, line string) {
	switch name, value, _ := strings.Cut(line, "="); name {
	case "log":
		w.lines++
		if w.tail = append(w.tail, value); len(w.tail) > tailLines {
			w.tail = w.tail[1:]
		}
		w.a.sendEvent(w.name, event.NodeLog, event.Activate, value)
	case "unit":
		unit, line, _ := strings.Cut(value, " ")
		w.units[unit] = append(w.units[unit], line)
	default:
		p.handleLine(line)
	}
}

// attemptLimit returns the time limit for a login, and also for the first output after the login. It doubles the limit after each
// attempt without output: a slow machine may answer late, and each cancelled attempt costs the machine another login. The limit is
// at most a quarter of the confirm time (but at least maxSilence), so that several attempts are possible within the confirm time.
func (w *watch) attemptLimit() time.Duration {
	confirm := w.confirm
	if confirm == 0 {
		confirm = 5 * time.Minute
	}
	return max(maxSilence, min(maxSilence<<min(w.slowness, 4), confirm/4))
}

// silenceLimit returns how long the node may print nothing after its first output. While nixbench follows a run, the shell script
// on the node prints a line every second.
func (w *watch) silenceLimit() time.Duration {
	if w.confirm == 0 {
		return maxSilence
	}
	return min(maxSilence, max(3*time.Second, w.confirm/4))
}
