package main

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
)

// app contains the flags, the view and the state that all commands use.
type app struct {
	ctx      context.Context
	started  bool // whether the body of the command has started; later errors are then no usage errors
	view     *ui.View
	viewOnce sync.Once
	sink     event.Sink       // receives the events after a session was opened; nil: there is no session yet
	connect  hypervisorOpener // connects to hypervisors

	ongoing   ongoingWork // phases and nodes in progress, which are shown when Ctrl-C does not end the command at once
	recording atomic.Bool // whether a run is recorded: after an interrupt, nodes must be uncordoned and the record must be ended
	paused    atomic.Bool // whether another program uses the terminal: an interrupt must then wait until it has ended

	// flags of all commands
	file, flake string
	sets        []string
	nixOptions  []string
	factsFile   string
	showTrace   bool
	impure      bool
	sshPrograms bool
	json        bool
	verbose     bool
	color       string
	evalWorkers int

	evalNodeLimit string
}

func newApp(ctx context.Context, open hypervisorOpener) *app { return &app{ctx: ctx, connect: open} }

// commandBody is the code of a command. It runs after the view, which prints events and results, was opened.
type commandBody func(args []string) error

// withView converts a commandBody to a function that the flag library cobra calls for a command.
func (a *app) withView(body commandBody) func(*cobra.Command, []string) error {
	return func(_ *cobra.Command, args []string) error {
		a.started = true
		a.openView()
		return body(args)
	}
}

func (a *app) openView() {
	a.viewOnce.Do(func() {
		a.view = ui.New(ui.Options{Out: os.Stdout, Err: os.Stderr, JSON: a.json, Verbose: a.verbose, Color: a.color})
	})
}

// finish closes the view, and returns the exit code for err. If err is not nil, it shows err before.
func (a *app) finish(err error) int {
	a.openView()
	code := exitCode(err)
	switch _, programFailed := err.(*programError); {
	case err == nil, programFailed: // the program has shown its own error
	case failure.KindOf(err) == failure.Changes && a.json: // no error, because the result, which is the last line of --json, contains the changes
	case failure.KindOf(err) == failure.Declined, failure.KindOf(err) == failure.Changes:
		event.Sink(a.sendEvent).Note("%v", err)
	default:
		a.view.Problems(code, splitProblems(err))
	}
	if err := a.view.Close(); err != nil && code == exitOK {
		return exitInternal // the result was not written completely: the disk is full, or no process reads the pipe
	}
	return code
}

// sendEvent sends an event to the session, which also records it if a run is recorded. Without a session, it sends the event to
// the view.
func (a *app) sendEvent(e event.Event) {
	if a.sink != nil {
		a.sink(e)
		return
	}
	a.showEvent(e)
}

func (a *app) showEvent(e event.Event) {
	a.ongoing.observe(e)
	a.view.Event(e)
}

// lendTerminal calls f, which uses the terminal, for example for another program. Until f returns, nixbench writes nothing. After
// an interrupt, nixbench waits until f returns.
func (a *app) lendTerminal(f func()) {
	a.paused.Store(true)
	defer a.paused.Store(false)
	a.view.Pause(f)
}

// preferCause returns errInterrupted if the command failed after an interrupt signal. If err is an error of Nix or has no known
// kind, it checks this computer: if a problem here (such as a full TMPDIR) is probably the cause, it adds this to err. Otherwise
// it returns err unchanged.
func (a *app) preferCause(err error) error {
	if err != nil && errors.Is(context.Cause(a.ctx), errInterrupted) {
		return errInterrupted
	}
	switch failure.KindOf(err) {
	case failure.Evaluation, failure.Build, failure.Nix, failure.Internal:
		if broken := checkEnvironment(); err != nil && broken != nil {
			return errors.Join(broken, err)
		}
	}
	return err
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// expandFileFlag converts the flag -f to --file if it is in front of the command's name. Some commands use -f for another flag,
// and the flag library parses the flags in front of the name together with those of the command.
func expandFileFlag(root *cobra.Command, args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if len(arg) < 2 || arg[0] != '-' || arg == "--" { // the command
			return append(out, args[i:]...)
		}
		value, isFile := strings.CutPrefix(arg, "-f")
		switch {
		case isFile && value != "":
			out = append(out, "--file="+strings.TrimPrefix(value, "="))
		case isFile && i+1 < len(args):
			i++
			out = append(out, "--file="+args[i])
		default:
			out = append(out, arg)
			if f := root.PersistentFlags().Lookup(strings.TrimPrefix(arg, "--")); f != nil && f.NoOptDefVal == "" && i+1 < len(args) {
				i++
				out = append(out, args[i]) // the value of the flag
			}
		}
	}
	return out
}

// joinNixOptions converts `--nix-option NAME VALUE`, the syntax of Colmena and of Nix's own
// --option, to the single argument that the flag library supports.
func joinNixOptions(args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			return append(out, args[i:]...)
		}
		if args[i] == "--nix-option" && i+2 < len(args) && !strings.Contains(args[i+1], "=") {
			out = append(out, "--nix-option="+args[i+1]+"="+args[i+2])
			i += 2
			continue
		}
		out = append(out, args[i])
	}
	return out
}
