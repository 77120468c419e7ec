package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/nixeval"
)

// hypervisorOpener returns a function that opens hypervisors. An opened hypervisor sends its events to send.
type hypervisorOpener func(send event.Sink) machine.Opener

// newHypervisorOpener returns a function that opens hypervisors. It chooses the constructor of the provider, which manages machines on the
// hypervisor, by cluster.hypervisors.<name>.kind. A provider connects to the hypervisor with the first request, and sends its events to send.
func newHypervisorOpener(send event.Sink) machine.Opener {
	return func(name string, h provider.Hypervisor) (provider.Provider, error) {
		if h.Kind == "" || h.Kind == "libvirt" {
			return openLibvirt(name, h, send)
		}
		return nil, failure.NewUsage("cluster.hypervisors.%s.kind = %q: this nixbench has no such kind of hypervisor, only libvirt", name, h.Kind)
	}
}

// app contains the flags, the view and the state that all commands use.
type app struct {
	ctx      context.Context
	started  bool // whether the body of the command has started; later errors are then no usage errors
	view     *ui.View
	viewOnce sync.Once
	sink     event.Sink // the view, or the session when there is one, which also records events

	recording atomic.Bool // whether a run is recorded: after an interrupt, nodes must be uncordoned and the record must be ended
	paused    atomic.Bool // whether another program uses the terminal: an interrupt must then wait until it has ended

	// flags of all commands
	request       deploy.Request // most of them are fields of it
	sets          []string
	noEvalCache   bool
	acceptConfig  bool
	json, verbose bool
	color         string
}

func newApp(ctx context.Context, open hypervisorOpener) *app {
	return &app{ctx: ctx, request: deploy.Request{Hypervisors: open, Args: os.Args[1:], Version: readBuildVersion().Version}}
}

// withView converts the code of a command to a function that cobra calls. The code runs after the view was opened.
func (a *app) withView(body func(args []string) error) func(*cobra.Command, []string) error {
	return func(_ *cobra.Command, args []string) error {
		a.started = true
		a.openView()
		return body(args)
	}
}

// withSession converts the code of a command to a function that cobra calls. The code gets a session for the nodes that f selects, if
// command is empty. Otherwise it gets a session that holds the lock of the cluster, for the command with this name.
func (a *app) withSession(command string, f *fleetFlags, filter deploy.NodeFilter, body func(s *deploy.Session, args []string) error) func(*cobra.Command, []string) error {
	return a.withView(func(args []string) error {
		return a.inSession(*f, onNodes(command, filter), func(s *deploy.Session) error { return body(s, args) })
	})
}

func (a *app) openView() {
	a.viewOnce.Do(func() {
		a.view = ui.New(ui.Options{Out: os.Stdout, Err: os.Stderr, JSON: a.json, Verbose: a.verbose, Color: a.color})
		a.sink = a.view.Event
	})
}

func (a *app) finish(err error) int {
	a.openView()
	code := exitCode(err)
	command, _ := err.(*commandError)
	switch {
	case err == nil, command != nil && command.shown:
	case failure.KindOf(err) == failure.Changes && a.json: // no error, because the result, which is the last line of --json, contains the changes
	case failure.KindOf(err) == failure.Declined, failure.KindOf(err) == failure.Changes:
		a.sink.Note("%v", err)
	default:
		a.view.Problems(code, splitProblems(err))
	}
	if err := a.view.Close(); err != nil && code == exitOK {
		return exitCode(err) // the result was not written completely: the disk is full, or no process reads the pipe
	}
	return code
}

// lendTerminal calls f, which uses the terminal, for example for another program. Until f returns, nixbench writes nothing. After
// an interrupt, nixbench waits until f returns.
func (a *app) lendTerminal(f func()) {
	a.paused.Store(true)
	defer a.paused.Store(false)
	a.view.Pause(f)
}

func (a *app) preferInterrupt(err error) error {
	if err != nil && errors.Is(context.Cause(a.ctx), errInterrupted) {
		return errInterrupted
	}
	return err
}

func (a *app) newRequest(f fleetFlags) (deploy.Request, error) {
	r := a.request
	r.Parallel, r.AcceptNewHostKeys, r.Prompt, r.Send = f.parallel, f.acceptNew, newPrompt(a), a.view.Event
	r.Describe = func(err error) (int, error) {
		err = a.preferInterrupt(err)
		return exitCode(err), describeForRecord(err)
	}
	if cache, err := os.UserCacheDir(); err == nil && !a.noEvalCache {
		r.Eval.CacheDir = filepath.Join(cache, "nixbench", "eval")
	}
	if r.Eval.Workers < 0 {
		return r, failure.NewUsage("--eval-workers must not be negative (it is %d); 0 means as many as cores and memory allow", r.Eval.Workers)
	}
	if f.skipsAway {
		r.MayBeAway = func(d nixeval.Deployment) bool { return d.Optional || f.skipUnreachable }
	}
	var err error
	if r.Eval.Sets, err = nixeval.ParseSets(a.sets); err != nil {
		return r, err
	}
	if a.acceptConfig {
		r.Eval.NixOptions = append(r.Eval.NixOptions, [2]string{"accept-flake-config", "true"})
	}
	r.On, err = readSelection(a.ctx, f.on)
	return r, err
}

// inSession opens the session of a command, calls body, and closes the session. From then on, the session receives the command's events.
// set changes the request before.
func (a *app) inSession(f fleetFlags, set func(*deploy.Request), body func(*deploy.Session) error) error {
	r, err := a.newRequest(f)
	if err != nil {
		return err
	}
	set(&r)
	s, err := deploy.Open(a.ctx, r)
	if err != nil {
		return err
	}
	defer s.Close()
	a.sink = s.Send
	if s.Lock != nil {
		a.recording.Store(true)
	}
	return body(s)
}

// onNodes returns the change of a request for those of the selected nodes that filter names. command is empty for a command that only
// reads. The session of any other command holds the lock of the cluster.
func onNodes(command string, filter deploy.NodeFilter) func(*deploy.Request) {
	return func(r *deploy.Request) { r.Command, r.Nodes = command, filter }
}

func onNode(name string) func(*deploy.Request) {
	return func(r *deploy.Request) { r.Pick = deploy.NodeNamed(name) }
}
