package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine"
)

func consoleCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "console NODE",
		Short: "Connect to the console of a machine",
		Long: `Connect to the console of a machine that nixbench has booted, through its
hypervisor; SSH is not needed. Ctrl-] detaches. Without a terminal, print the
end of the console log.`,
		Example: `  nixbench console worker-1 | tail`,
		Args:    cobra.ExactArgs(1),
		RunE: a.withView(func(args []string) error {
			name := args[0]
			return a.inSession(fleetFlags{}, onNode(name), func(s *deploy.Session) error {
				if !machine.Boots(s.Hive, s.Nodes[0]) {
					return failure.WithHint(failure.NewUsage("console: nixbench has not booted the machine of %s, so its hypervisor is unknown", name), "nixbench ssh "+name)
				}
				recorded, err := s.State()
				if err != nil {
					return err
				}
				console, err := s.Machines.OpenConsole(recorded, name)
				if err != nil {
					return err
				}
				defer console.Close()
				if a.json || !term.IsTerminal(int(os.Stdin.Fd())) || !term.IsTerminal(int(os.Stdout.Fd())) {
					return showConsoleLog(a, console, name)
				}
				return attachConsole(a, console, name)
			})
		}),
	}
}

func showConsoleLog(a *app, console *machine.Console, name string) error {
	ctx, cancel := context.WithTimeout(a.ctx, time.Minute)
	defer cancel()
	text, err := console.Tail(ctx, 64<<10)
	if err != nil {
		return err
	}
	if text == "" {
		a.sink.Note("%s: its console has no output", name)
	}
	a.view.Result(text, func(io.Writer) {
		_, err = io.WriteString(os.Stdout, text)
	})
	return err
}

// detachKey is Ctrl-], the key that ends the connection to the console.
const detachKey = 0x1d

func attachConsole(a *app, console *machine.Console, name string) error {
	var err error
	a.lendTerminal(func() {
		fmt.Fprintf(os.Stderr, "connected to the console of %s; Ctrl-] detaches\r\n", name)
		fd := int(os.Stdin.Fd())
		before, rawErr := term.MakeRaw(fd)
		if rawErr != nil {
			err = rawErr
			return
		}
		err = console.Attach(a.ctx, readUntilDetached(os.Stdin), os.Stdout)
		_ = term.Restore(fd, before)
		fmt.Fprintf(os.Stderr, "\ndetached from the console of %s\n", name)
	})
	return err
}

// readUntilDetached returns a channel that receives what r reads. The channel is closed at the end of r, or when r reads the
// detach key. The goroutine that reads continues after that, because a read of a terminal cannot be interrupted.
func readUntilDetached(r io.Reader) <-chan []byte {
	out := make(chan []byte)
	go func() {
		defer close(out)
		for {
			buf := make([]byte, 1024)
			n, err := r.Read(buf)
			typed, _, detached := bytes.Cut(buf[:n], []byte{detachKey})
			if len(typed) > 0 {
				out <- typed
			}
			if detached || err != nil {
				return
			}
		}
	}()
	return out
}
