package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/stages"
)

type powerFlags struct {
	fleetFlags
	options machine.PowerOptions
	yes     bool
}

func stopCommand(a *app) *cobra.Command {
	var flags powerFlags
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Shut down machines that nixbench has booted",
		Long: `Shut down the machines that nixbench has booted, and wait until they are off.
The machines, their disks and their addresses remain: nixbench start, or the
next apply, starts them again.

In a cluster, the nodes that run the work are shut down first, and when they are
off, those that they need, such as control planes. Nothing is drained. A
machine that is not off after --timeout is an error.`,
		Example: `  nixbench stop --yes --force --timeout 30s`,
	}
	cmd.RunE = a.withView(func([]string) error {
		if err := a.requireConfirmation("stop", flags.on, flags.yes); err != nil {
			return err
		}
		return changePower(a, "stop", flags)
	})
	f := cmd.Flags()
	flags.add(f)
	addTimeouts(f, timeLimit{"stop", &flags.options.Timeout, 2 * time.Minute, time.Second, "until a machine is off"})
	f.BoolVar(&flags.options.Force, "force", false, "stop machines that are not off after --timeout, as a power failure does")
	f.BoolVarP(&flags.yes, "yes", "y", false, yesHelp)
	return cmd
}

// changePower starts or stops the machines of the selected nodes. Before it stops machines, it asks the user.
func changePower(a *app, command string, flags powerFlags) error {
	stops, change := command == "stop", (*machine.Power).Start
	if stops {
		change = (*machine.Power).Stop
	}
	set := func(r *deploy.Request) {
		r.Command, r.Nodes, r.AllNodesOnly = command, deploy.BootedNodes, stops
	}
	return a.inSession(flags.fleetFlags, set, func(s *deploy.Session) error {
		flags.options.Parallel = flags.parallel
		results, err := s.ChangePower(a.ctx, flags.options, func(p *machine.Power) error {
			var running []string
			for _, n := range s.Nodes {
				if !p.IsOff(n.Name) {
					running = append(running, n.Name)
				}
			}
			if !stops || len(running) == 0 {
				return nil
			}
			return a.confirm(fmt.Sprintf("shut down %s (%s)?", event.Count(len(running), "machine"), strings.Join(running, ", ")), flags.on, flags.yes)
		}, change)
		if results != nil {
			a.view.Result(results, func(io.Writer) {})
		}
		return err
	})
}

func startCommand(a *app) *cobra.Command {
	var flags powerFlags
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Start machines that are off",
		Long: `Start the machines that nixbench has booted before and that are off, paused or
crashed, wait until their systems have started, and upload their keys in /run
again. Nothing else is deployed.

In a cluster, the nodes that others need, such as control planes, are started
first. If one of them is not ready after --timeout, the others stay off.`,
		Example: `  nixbench start --on worker-3`,
	}
	cmd.RunE = a.withView(func([]string) error {
		return changePower(a, "start", flags)
	})
	f := cmd.Flags()
	flags.add(f)
	addTimeouts(f, timeLimit{"boot", &flags.options.Timeout, 5 * time.Minute, time.Second, "until a machine is ready"})
	return cmd
}

func rebootCommand(a *app) *cobra.Command {
	var flags rollingFlags
	var ifNeeded, yes bool
	cmd := &cobra.Command{
		Use:   "reboot",
		Short: "Reboot nodes, and wait until they are back",
		Long: `Reboot nodes, wait until each one is back with another boot id, verify that it
booted the system of its profile, and upload its keys in /run again.

In a running cluster, nodes are drained before, and reboot in the order in which
nixbench apply changes them, --max-unavailable at a time (default: 1).`,
		Example: `  nixbench apply boot && nixbench reboot --if-needed --max-unavailable 25% --yes`,
	}
	cmd.RunE = a.withView(func([]string) error {
		o, err := flags.toOptions()
		if err != nil {
			return err
		}
		if err := a.requireConfirmation("reboot", flags.on, yes); err != nil {
			return err
		}
		set := func(r *deploy.Request) {
			r.Command, r.AllNodesOnly, r.Nodes = "reboot", true, deploy.RemoteNodes
		}
		return a.inSession(flags.fleetFlags, set, func(s *deploy.Session) error {
			steps := stages.PlanReboot(s.Inspect(a.ctx), ifNeeded)
			return executeSteps(a, s, steps, o, "reboot", flags.on, yes, func(w io.Writer) {
				if len(steps) > 0 { // otherwise all selected nodes are away
					fmt.Fprintln(w, "no node needs a reboot")
				}
			})
		})
	})
	f := cmd.Flags()
	flags.add(f)
	f.BoolVar(&ifNeeded, "if-needed", false, "reboot only nodes that would boot another kernel than the running one")
	f.BoolVar(&flags.options.WithoutHealthChecks, "no-health-checks", false, noHealthHelp)
	addTimeouts(f, timeLimit{"reboot", &flags.options.RebootTimeout, 5 * time.Minute, time.Second, "until a node is back"})
	f.BoolVarP(&yes, "yes", "y", false, yesHelp)
	return cmd
}
