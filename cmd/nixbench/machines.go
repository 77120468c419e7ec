package main

import (
	"io"
	"strings"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/secrets/vault"
	"github.com/nixbench/nixbench/nixeval"
)

// hypervisorOpener returns an opener of hypervisors that sends their events to send.
type hypervisorOpener func(send event.Sink) machine.Opener

// newMachines returns the manager of the cluster's machines. It connects to a hypervisor only for
// the first request to it.
func (a *app) newMachines(e *nixeval.Evaluator, hive *nixeval.Hive, send event.Sink) *machine.Manager {
	return &machine.Manager{
		Hive: hive, Dir: a.dir, Vault: vault.Open(a.dir.Vault()), Open: a.connect(send), Eval: e, Send: send,
		Keep:    func(built map[string]nixeval.Closure) error { return a.registerRoots(e, hive, built) },
		APIPort: defaultAPIPort(hive), AccessFiles: accessFiles(),
	}
}

// confirmChanges shows the changes that stop running machines, and asks the user to confirm them.
func (a *app) confirmChanges(changes []machine.Change, yes bool) error {
	var list []string
	for _, c := range changes {
		list = append(list, c.String())
	}
	return a.askAboutList("apply", "apply these changes?", list, yes)
}

// askAboutList shows the list and asks the user the question, unless yes is set. Without a terminal
// it requires yes.
func (a *app) askAboutList(command, question string, list []string, yes bool) error {
	if !yes && !a.canAsk() {
		return failure.WithHint(newUsageError("%s: this needs confirmation and stdin is not a terminal; pass --yes:\n%s", command, strings.Join(list, "\n")), "check the list, then run the command again with --yes")
	}
	a.announce(func(w io.Writer) {
		for _, line := range list {
			ui.WriteText(w, "  "+line, "    ")
		}
	})
	return a.confirm(question, nil, yes)
}
