package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy/event"
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

func (a *app) stopCommand() *cobra.Command {
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
	cmd.RunE = a.withView(func([]string) error { return a.stop(flags) })
	f := cmd.Flags()
	f.SortFlags = false
	flags.add(f)
	f.DurationVar(&flags.timeout, "timeout", 2*time.Minute, "time limit for a machine to shut down")
	f.BoolVar(&flags.force, "force", false, "stop machines that are not off after --timeout, as a power failure does")
	f.BoolVarP(&flags.yes, "yes", "y", false, "do not ask before all machines are stopped")
	return cmd
}

func (a *app) stop(flags powerFlags) error {
	if err := a.requireConfirmation("stop", flags.on, flags.yes); err != nil {
		return err
	}
	return a.changePower("stop", flags, func(p *machine.Power, nodes []nixeval.Node) error {
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

// changePower runs change on the machines of the selected nodes, in a recorded run, unless ask returns an error.
func (a *app) changePower(command string, flags powerFlags, ask func(*machine.Power, []nixeval.Node) error,
	change func(*machine.Power, context.Context, []nixeval.Node, *runs.Recorder, machine.PowerOptions) ([]state.NodeResult, error),
) error {
	if flags.timeout <= 0 {
		return newUsageError("--timeout must be greater than 0 (it is %v)", flags.timeout)
	}
	e, hive, nodes, err := a.loadNodes(flags.on)
	if err != nil {
		return err
	}
	if command == "stop" {
		if err := checkApplyAll(command, e, hive, flags.on); err != nil {
			return err
		}
	}
	if nodes, err = a.selectBooted(command, hive, nodes, flags.on); err != nil {
		return err
	}
	if err := checkUnlocked(a.dir); err != nil {
		return err
	}
	return a.runRecorded(e, hive, command, func(s *session) error {
		conns := a.newFleet(hive, flags.fleetFlags, s.store)
		defer conns.Close()
		power, err := a.newMachines(e, hive, s.send).OpenPower(a.ctx, conns, s.store.State())
		if err != nil {
			return err
		}
		defer power.Close()
		if err := ask(power, nodes); err != nil {
			return err
		}
		results, err := change(power, a.ctx, nodes, s.record, machine.PowerOptions{Parallel: flags.parallel, Timeout: flags.timeout, Force: flags.force})
		a.view.Result(results, func(io.Writer) {})
		return err
	})
}

// selectBooted returns the nodes whose machines nixbench boots. It omits other nodes with a note; if the user has selected
// them with --on, this is an error.
func (a *app) selectBooted(command string, hive *nixeval.Hive, nodes []nixeval.Node, on []string) ([]nixeval.Node, error) {
	var others []string
	for _, n := range nodes {
		if hive.Broken[n.Unit] != nil {
			return nil, &nixeval.EvalError{Units: map[string]*nixeval.NixError{n.Unit: hive.Broken[n.Unit]}}
		}
		if !machine.Boots(hive, n) {
			others = append(others, n.Name)
		}
	}
	if len(others) == 0 {
		return nodes, nil
	}
	booted := machine.Booted(hive, nodes)
	text := "nixbench has not booted the machines of " + strings.Join(others, ", ")
	if len(on) > 0 || len(booted) == 0 {
		return nil, failure.WithHint(newUsageError("%s: %s, so it cannot start them again", command, text), "nixbench reboot restarts such nodes; nixbench exec --root -- systemctl poweroff shuts them down")
	}
	a.sendEvent(event.Event{Kind: event.Message, Level: "note", Time: time.Now(), Text: "omitted, because " + text})
	return booted, nil
}
