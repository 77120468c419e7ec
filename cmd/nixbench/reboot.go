package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/stages"
	"github.com/nixbench/nixbench/deploy/state"
)

const rebootLong = `Reboot nodes, wait until each one is back with another boot id, and verify that
it booted the system of its profile.

In a running cluster, members that all others need, such as control planes,
reboot one at a time, other nodes --max-unavailable at a time (default: 1). Each
node is drained before, and uncordoned afterwards.

Without --on it reboots all nodes and asks before; without a terminal it
requires --yes.`

type rebootFlags struct {
	fleetFlags
	ifNeeded, yes  bool
	timeout        time.Duration
	maxUnavailable string
	drain          drainFlags
}

func rebootCommand(a *app) *cobra.Command {
	var flags rebootFlags
	cmd := &cobra.Command{
		Use:   "reboot",
		Short: "Reboot nodes, and wait until they are back",
		Long:  rebootLong,
		Example: `  nixbench reboot --on web-1
  nixbench apply boot && nixbench reboot --if-needed --max-unavailable 25% --yes`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = a.withView(func([]string) error { return runReboot(a, flags) })
	f := cmd.Flags()
	f.SortFlags = false
	flags.add(f)
	f.BoolVar(&flags.ifNeeded, "if-needed", false, "reboot only nodes that would boot another kernel than the running one")
	f.DurationVar(&flags.timeout, "timeout", 5*time.Minute, "time limit for a node to come back")
	f.StringVar(&flags.maxUnavailable, "max-unavailable", "", "reboot at most `N|P%` of the nodes at once, and stop after a failure")
	flags.drain.add(f, noDrainHelp)
	f.BoolVarP(&flags.yes, "yes", "y", false, "do not ask before all nodes are changed")
	return cmd
}

func runReboot(a *app, flags rebootFlags) error {
	o := stages.RebootOptions{
		RollingOptions: stages.RollingOptions{Parallel: flags.parallel, WithoutDrain: flags.drain.noDrain},
		Timeout:        flags.timeout, IfNeeded: flags.ifNeeded,
	}
	if flags.timeout <= 0 {
		return failure.NewUsage("--timeout must be greater than 0 (it is %v)", flags.timeout)
	}
	var err error
	if o.Drain, err = flags.drain.toOptions(); err != nil {
		return err
	}
	if o.MaxUnavailable, err = selection.ParseShare(flags.maxUnavailable); err != nil {
		return err
	}
	if err := a.requireConfirmation("reboot", flags.on, flags.yes); err != nil {
		return err
	}
	s, err := a.open(flags.fleetFlags, func(r *deploy.Request) {
		r.Command, r.AllNodesOnly, r.Nodes = "reboot", true, deploy.SelectedNodes
	})
	if err != nil {
		return err
	}
	defer s.Close()
	inspected := s.Inspect(a.ctx)
	if n := countReboots(inspected, flags.ifNeeded); n == 0 {
		a.view.Result([]state.NodeResult{}, func(w io.Writer) { fmt.Fprintln(w, "no node needs a reboot") })
		return errors.Join(fleet.Errors(inspected)...)
	} else if err := a.confirm(fmt.Sprintf("reboot %s?", fleet.Count(n, "node")), flags.on, flags.yes); err != nil {
		return err
	}
	results, err := s.Reboot(a.ctx, inspected, o)
	if results != nil {
		a.view.Result(results, func(io.Writer) {})
	}
	return err
}

// countReboots returns how many of the inspected nodes the command would reboot. It does not count nodes that could not be
// reached.
func countReboots(inspected []fleet.Outcome[activate.Node], ifNeeded bool) int {
	n := 0
	for _, o := range inspected {
		if o.Err == nil && (!ifNeeded || o.Value.RebootNeeded()) {
			n++
		}
	}
	return n
}
