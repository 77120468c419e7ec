package main

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval"
)

// fleetFlags are those of commands that talk to nodes.
type fleetFlags struct {
	on        []string
	parallel  int
	acceptNew bool
}

func (f *fleetFlags) add(set *pflag.FlagSet) {
	set.StringArrayVar(&f.on, "on", nil, onHelp)
	set.IntVar(&f.parallel, "parallel", 10, "work on at most `N` nodes at once; 0: on all")
	set.BoolVar(&f.acceptNew, "accept-new-host-keys", false, "trust the host keys of hosts that known_hosts does not know, and remember them")
}

// fleet prepares connections to the nodes of the hive.
func (a *app) fleet(hive *nixeval.Hive, f fleetFlags) *deploy.Fleet {
	return deploy.NewFleet(hive, remote.Options{AcceptNewHostKeys: f.acceptNew, Prompt: a.prompt()})
}

// prompt asks on the terminal, one question at a time; without a terminal nobody
// can be asked.
func (a *app) prompt() remote.Prompt {
	if a.json || !term.IsTerminal(int(os.Stdin.Fd())) {
		return nil
	}
	var mu sync.Mutex
	return func(_ context.Context, question string) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		var answer []byte
		var err error
		a.view.Pause(func() {
			fmt.Fprint(os.Stderr, question)
			answer, err = term.ReadPassword(int(os.Stdin.Fd()))
			fmt.Fprintln(os.Stderr)
		})
		return answer, err
	}
}
