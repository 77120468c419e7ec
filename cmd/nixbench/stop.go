package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
	"github.com/nixbench/nixbench/nixeval"
)

const stopLong = `Shut down the machines that nixbench has booted, and wait until they are off.
The machines, their disks and their addresses remain: nixbench start, or the
next apply, starts them again.

In a cluster, the nodes that run the work are shut down first, and when they are
off, those that they need, such as control planes. Nothing is drained.

A machine that is not off after --timeout is an error. Without --on it stops all
machines and asks before; without a terminal it requires --yes.`

// powerFlags are the flags of stop and start.
type powerFlags struct {
	fleetFlags
	timeout    time.Duration
	force, yes bool
}

func stopCommand(a *app) *cobra.Command {
	var flags powerFlags
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Shut down machines that nixbench has booted",
		Long:  stopLong,
		Example: `  nixbench stop
  nixbench stop --on worker-3
  nixbench stop --yes --force --timeout 30s`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = a.withView(func([]string) error { return runStop(a, flags) })
	f := cmd.Flags()
	f.SortFlags = false
	flags.add(f)
	f.DurationVar(&flags.timeout, "timeout", 2*time.Minute, "time limit for a machine to shut down")
	f.BoolVar(&flags.force, "force", false, "stop machines that are not off after --timeout, as a power failure does")
	f.BoolVarP(&flags.yes, "yes", "y", false, "do not ask before all machines are stopped")
	return cmd
}

func runStop(a *app, flags powerFlags) error {
	if err := a.requireConfirmation("stop", flags.on, flags.yes); err != nil {
		return err
	}
	return changePower(a, "stop", flags, func(p *machine.Power, nodes []nixeval.Node) error {
		var running []string
		for _, n := range nodes {
			if !p.IsOff(n.Name) {
				running = append(running, n.Name)
			}
		}
		if len(running) == 0 {
			return nil
		}
		return a.confirm(fmt.Sprintf("shut down %s (%s)?", fleet.Count(len(running), "machine"), strings.Join(running, ", ")), flags.on, flags.yes)
	}, (*machine.Power).Stop)
}

// changePower calls ask, which may ask the user to confirm. If ask returns no error, it calls change for the machines of the
// selected nodes.
func changePower(a *app, command string, flags powerFlags, ask func(*machine.Power, []nixeval.Node) error,
	change func(*machine.Power, context.Context, []nixeval.Node, *runs.Recorder, machine.PowerOptions) ([]state.NodeResult, error),
) error {
	if flags.timeout <= 0 {
		return failure.NewUsage("--timeout must be greater than 0 (it is %v)", flags.timeout)
	}
	s, err := a.open(flags.fleetFlags, func(r *deploy.Request) {
		r.Command, r.Nodes, r.AllNodesOnly = command, deploy.BootedNodes, command == "stop"
	})
	if err != nil {
		return err
	}
	defer s.Close()
	o := machine.PowerOptions{Parallel: flags.parallel, Timeout: flags.timeout, Force: flags.force}
	results, err := s.ChangePower(a.ctx, o, func(p *machine.Power) error { return ask(p, s.Nodes) }, change)
	if results != nil {
		a.view.Result(results, func(io.Writer) {})
	}
	return err
}
