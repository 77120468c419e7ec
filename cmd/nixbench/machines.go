package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/secrets/vault"
	"github.com/nixbench/nixbench/nixeval"
)

// opener gives the way to hypervisors; what they say while they work goes to send.
type opener func(send event.Sink) deploy.Opener

// machines are those of the cluster. Nothing is connected before something is asked.
func (a *app) machines(e *nixeval.Evaluator, hive *nixeval.Hive, send event.Sink) *deploy.Machines {
	return &deploy.Machines{
		Hive: hive, Dir: a.dir, Vault: vault.Open(a.dir.Vault()), Open: a.connect(send), Eval: e, Send: send,
		Keep: func(built map[string]nixeval.Closure) error { return a.keepRoots(e, hive, built) },
	}
}

// mayChange asks before machines that run are stopped.
func (a *app) mayChange(changes []provision.Change, yes bool) error {
	var list []string
	for _, c := range changes {
		list = append(list, c.String())
	}
	return a.agreed("apply", "go on?", list, yes)
}

// agreed shows what is about to be lost, and asks. Without a terminal nobody can be
// asked, so that --yes is wanted.
func (a *app) agreed(command, question string, list []string, yes bool) error {
	if !yes && !a.canAsk() {
		return &hinted{usagef("%s: without a terminal nobody can be asked whether this is meant:\n%s", command, strings.Join(list, "\n")), "--yes says that it is"}
	}
	a.announce(func(w io.Writer) {
		for _, line := range list {
			fmt.Fprintln(w, "  "+line)
		}
	})
	return a.confirmed(question, nil, yes)
}
