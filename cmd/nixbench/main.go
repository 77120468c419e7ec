// Command nixbench deploys NixOS: to machines that exist, and to machines that it
// boots itself. `nixbench help` is where to begin.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(run(os.Args[1:], hypervisors))
}

// errInterrupted is why the context ends when the user or the system says so.
var errInterrupted = errors.New("interrupted")

// run is the whole program but for the exit itself.
func run(args []string, open opener) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-signals
		cancel(errInterrupted)
		signal.Stop(signals) // who asks twice does not want to wait
	}()

	app := newApp(ctx, open)
	over := make(chan struct{})
	defer close(over)
	go app.watchInterrupt(over, os.Exit)
	root := app.rootCommand()
	root.SetArgs(joinPairs(args))
	cmd, err := root.ExecuteC()
	if err != nil && !app.started { // before a command's own code runs, errors are about usage
		err = mistyped(cmd, err)
	}
	return app.finish(app.interrupted(err))
}
