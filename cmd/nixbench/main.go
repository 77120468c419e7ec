// Command nixbench deploys NixOS to existing machines, and to machines that it boots itself. Start
// with `nixbench help`.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
)

func main() {
	os.Exit(run(os.Args[1:], newHypervisorOpener))
}

// errInterrupted is the cause for which the context is cancelled after SIGINT, SIGTERM, SIGHUP or SIGQUIT.
var errInterrupted = failure.WithKind(failure.Interrupted, errors.New("interrupted"))

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
	if len(args) > 1 && args[0] == "-f" { // before a command, -f is always --file, also if the command has a flag -f of its own, as logs has
		args = append([]string{"--file"}, args[1:]...)
	}
	root.SetArgs(joinNixOptions(args))
	cmd, err := root.ExecuteC()
	if err != nil && !app.started { // the parser has rejected the command line, before the body of the command ran
		err = suggestCorrection(cmd, err)
	}
	return app.finish(app.preferInterrupt(err))
}

// Time limits after an interrupt. A command may have to restore keys, uncordon nodes, or wait for a
// program before it ends.
const (
	reportAfter = 500 * time.Millisecond // after this time, nixbench prints that it waits
	viewGrace   = 200 * time.Millisecond // time limit for the view to show this message
	giveUpAfter = time.Minute            // after this time, nixbench exits although work is unfinished
)

// watchInterrupt waits until the command is interrupted, and then reports that work is unfinished. If the command does not end within
// giveUpAfter, it calls exit; the next run then finds the same state as after a killed run. When the channel ended is closed, the
// command has ended, and watchInterrupt returns. While another program uses the terminal, it reports nothing.
func (a *app) watchInterrupt(ended <-chan struct{}, exit func(code int)) {
	select {
	case <-a.ctx.Done():
	case <-ended:
		return
	}
	if isClosedWithin(ended, reportAfter) {
		return
	}
	if !a.paused.Load() {
		reported := make(chan struct{})
		go func() {
			defer close(reported)
			a.openView()
			a.view.Event(event.Event{Kind: event.Message, Level: "note", Time: time.Now(),
				Text: "interrupted; waiting for the operations in progress; Ctrl-C again ends nixbench at once, and the next run continues"})
		}()
		// If the view cannot show the message, no process reads the pipe, or the terminal is stopped. A command that records no run has
		// no node to uncordon and no record to end, so it exits then.
		if !isClosedWithin(reported, viewGrace) && !a.recording.Load() {
			exit(exitInterrupted)
			return
		}
	}
	if !isClosedWithin(ended, giveUpAfter) {
		go fmt.Fprintf(os.Stderr, "error: interrupted; the operations in progress did not end within %v\n", giveUpAfter)
		time.Sleep(viewGrace) // for the message, which is lost if stderr is a stopped terminal
		exit(exitInterrupted)
	}
}

func isClosedWithin(c <-chan struct{}, d time.Duration) bool {
	select {
	case <-c:
		return true
	case <-time.After(d):
		return false
	}
}
