// Command nixbench deploys NixOS to existing machines, and to machines that it boots itself. Start
// with `nixbench help`.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/nixbench/nixbench/deploy/failure"
)

func main() {
	os.Exit(run(os.Args[1:], newHypervisorOpener))
}

// errInterrupted is the cause for which the context is cancelled after SIGINT, SIGTERM, SIGHUP or SIGQUIT.
var errInterrupted error = interruptedError{}

type interruptedError struct{}

func (interruptedError) Error() string      { return "interrupted" }
func (interruptedError) Kind() failure.Kind { return failure.Interrupted }

// run runs nixbench with the command line args, and returns the exit code. Unlike main, it can be called by tests.
func run(args []string, open hypervisorOpener) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	go func() {
		<-signals
		cancel(errInterrupted)
		signal.Stop(signals) // so that a second signal ends the process at once
	}()

	app := newApp(ctx, open)
	ended := make(chan struct{})
	defer close(ended)
	go app.watchInterrupt(ended, os.Exit)
	root := newRootCommand(app)
	root.SetArgs(expandFileFlag(root, joinNixOptions(args)))
	cmd, err := root.ExecuteC()
	if err != nil && !app.started { // the parser has rejected the command line, before the body of the command ran
		err = suggestCorrection(cmd, err)
	}
	return app.finish(app.preferCause(err))
}
